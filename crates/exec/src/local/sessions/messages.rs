//! The protocol between the server and a session's interpreter on its control channel.
//!
//! The interpreter is a guest: its replies are bounded, checked, and matter to its own session alone.

use std::io;

use ringfence_policy::{Bytes, EnvName};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::super::job;
use super::results::{MAX_RESULTS_BYTES, RichResults};

/// Maximum length of a value's text, whatever the output limit is.
const MAX_VALUE: u64 = 64 * 1024;

/// Length that stands for "no value".
const NO_VALUE: u64 = u64::MAX;

/// A message to evaluate code.
#[derive(Debug, Clone, Copy)]
pub struct Evaluation<'a> {
    /// Number that the reply must repeat: a late or premature reply does not match.
    pub number: u32,
    /// Maximum length of the value in the reply, in bytes.
    pub wanted: u32,
    /// Set if a file descriptor for standard input follows.
    pub stdin: bool,
    /// Set if a file descriptor for the bridge follows, behind that.
    pub bridge: bool,
    /// Set if SIGINT may be pending that was meant for the evaluation before.
    pub after_interrupt: bool,
    pub name: &'a str,
    pub code: &'a str,
    pub arguments: &'a [String],
    pub variables: &'a [(EnvName, String)],
    pub lasting: Lasting,
}

/// The time for which the variables of an evaluation are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    Session,
    /// One evaluation: the environment from before is restored afterwards.
    Evaluation,
}

/// Returns the maximum length of a value for this output limit.
pub fn wanted(max_output: Bytes) -> u32 {
    max_output.0.min(MAX_VALUE) as u32
}

impl Evaluation<'_> {
    /// Encodes the message for `python/session.py`.
    pub fn message(&self) -> Vec<u8> {
        let job = job::encode(self.name, self.code, self.arguments, self.variables);
        // The message's length replaces the job's own.
        let job = job.get(4..).unwrap_or_default();
        let head = [
            b"E",
            &self.number.to_le_bytes()[..],
            &self.wanted.to_le_bytes(),
            &[u8::from(self.stdin)
                | u8::from(self.bridge) << 1
                | u8::from(self.after_interrupt) << 2
                | u8::from(self.lasting == Lasting::Evaluation) << 3],
        ];
        let head = head.concat();
        let length = u32::try_from(head.len() + job.len()).unwrap_or(u32::MAX);
        [&length.to_le_bytes()[..], &head, job].concat()
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// If there is none, or it is malformed.
    pub async fn answer(&self, channel: impl AsyncRead + Unpin) -> Result<Answer, NoAnswer> {
        Answer::receive(channel, self.number, self.wanted).await
    }
}

impl Answer {
    /// Waits for the reply to the message with this number. Rejects a value longer than `wanted`.
    ///
    /// # Errors
    /// If there is none, or it is malformed.
    pub async fn receive(
        mut channel: impl AsyncRead + Unpin,
        asked: u32,
        wanted: u32,
    ) -> Result<Self, NoAnswer> {
        let mut head = [0; 21];
        channel.read_exact(&mut head).await?;
        let [
            n0,
            n1,
            n2,
            n3,
            status,
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            t7,
            l0,
            l1,
            l2,
            l3,
            r0,
            r1,
            r2,
            r3,
        ] = head;
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        let total = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let results = u32::from_le_bytes([r0, r1, r2, r3]);
        let fits = match total {
            NO_VALUE => length == 0,
            total => length <= wanted && u64::from(length) <= total,
        };
        if number != asked || !fits || results > MAX_RESULTS_BYTES {
            return Err(NoAnswer::Nonsense);
        }
        let mut text = vec![0; length as usize];
        channel.read_exact(&mut text).await?;
        let mut rich = vec![0; results as usize];
        channel.read_exact(&mut rich).await?;
        let results = RichResults::parse(&rich).ok_or(NoAnswer::Nonsense)?;
        let value = (total != NO_VALUE).then(|| Value::new(&text, total));
        Ok(Self {
            status,
            value,
            results,
        })
    }
}

/// Encodes the message that asks a session to let its launcher fork it.
pub(super) fn fork(number: u32) -> Vec<u8> {
    [&5_u32.to_le_bytes()[..], b"F", &number.to_le_bytes()].concat()
}

/// An error of receiving a session's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The channel is closed: the interpreter has exited, or closed it itself.
    HungUp,
    /// The reply is malformed.
    Nonsense,
}

impl From<io::Error> for NoAnswer {
    fn from(_: io::Error) -> Self {
        Self::HungUp
    }
}

/// The interpreter's reply to an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// 0, 1 for an exception, or the argument of `sys.exit`.
    pub status: u8,
    pub value: Option<Value>,
    pub results: RichResults,
}

/// The `repr` of the last expression's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    /// Set if the text's end was truncated.
    pub cut: bool,
}

impl Value {
    fn new(bytes: &[u8], total: u64) -> Self {
        let left_out = total - bytes.len() as u64;
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if left_out > 0 {
            text.push_str(&format!("... (output truncated) {left_out} bytes left out"));
        }
        Self {
            text,
            cut: left_out > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Evaluation<'_> = Evaluation {
        number: 7,
        wanted: 4,
        stdin: true,
        bridge: true,
        after_interrupt: true,
        name: "a",
        code: "x",
        arguments: &[],
        variables: &[],
        lasting: Lasting::Session,
    };

    #[track_caller]
    fn check(answer: &[u8], expected: Result<(u8, Option<&str>), NoAnswer>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(ASKED.answer(answer));
        let found = found.map(|answer| (answer.status, answer.value.map(|value| value.text)));
        assert_eq!(
            found,
            expected.map(|(status, value)| (status, value.map(str::to_owned)))
        );
    }

    fn said(number: u8, status: u8, total: u64, text: &[u8]) -> Vec<u8> {
        let length = text.len() as u32;
        let head = [
            &[number, 0, 0, 0, status][..],
            &total.to_le_bytes(),
            &length.to_le_bytes(),
            &[0; 4],
        ];
        [&head.concat(), text].concat()
    }

    #[test]
    fn the_message_says_its_length_first() {
        let message = ASKED.message();
        let job = job::encode("a", "x", &[], &[]);
        assert_eq!(message[..4], (message.len() as u32 - 4).to_le_bytes());
        assert_eq!(message[4..14], *b"E\x07\0\0\0\x04\0\0\0\x07");
        assert_eq!(message[14..], job[4..]);
    }

    #[test]
    fn an_answer_is_taken_as_it_is_meant() {
        check(&said(7, 3, NO_VALUE, b""), Ok((3, None)));
        check(&said(7, 0, 2, b"42"), Ok((0, Some("42"))));
        check(&said(7, 0, 0, b""), Ok((0, Some(""))));
        let cut = "abcd... (output truncated) 5 bytes left out";
        check(&said(7, 0, 9, b"abcd"), Ok((0, Some(cut))));
        check(&said(7, 0, 1, b"\xff"), Ok((0, Some("\u{fffd}"))));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        check(b"", Err(NoAnswer::HungUp));
        check(&said(7, 0, 2, b"42")[..22], Err(NoAnswer::HungUp));
        for nonsense in [
            said(8, 0, 2, b"42"),
            said(7, 0, 5, b"abcde"),
            said(7, 0, 1, b"42"),
            said(7, 0, NO_VALUE, b"4"),
            vec![0xff; 64],
        ] {
            check(&nonsense, Err(NoAnswer::Nonsense));
        }
    }
}
