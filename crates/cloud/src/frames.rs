//! Messages of a stream: one byte of flags, four of length, JSON.

use crate::error::Error;

/// Length limit of a message. Services send 32 KiB of output at once, in base64.
const MAX_MESSAGE: usize = 1024 * 1024;
/// Flag of a message that is compressed, which this client does not ask for.
const COMPRESSED: u8 = 1;
/// Flag of the last message.
const LAST: u8 = 2;

/// A reader of messages.
#[derive(Debug, Default)]
pub(crate) struct Frames(Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Message(Vec<u8>),
    /// The end, with an error or none.
    Last(Vec<u8>),
}

impl Frames {
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next whole message.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Error> {
        let Some((head, rest)) = self.0.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let [flags, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            return Err(Error::Protocol("a message is longer than 1 MiB"));
        }
        if flags & COMPRESSED != 0 {
            return Err(Error::Protocol("a message is compressed"));
        }
        let Some(message) = rest.get(..length) else {
            return Ok(None);
        };
        let message = message.to_vec();
        self.0.drain(..5 + length);
        Ok(Some(match flags & LAST {
            0 => Frame::Message(message),
            _ => Frame::Last(message),
        }))
    }
}

/// Returns a message with its frame header.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    // What this client sends is far shorter.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_message_of_ours_is_an_error() {
        let refused = |bytes: &[u8]| {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert!(matches!(frames.next(), Err(Error::Protocol(_))), "{bytes:?}");
        };
        refused(&[0, 0xff, 0xff, 0xff, 0xff]);
        refused(&[0, 0, 0x10, 0, 1]);
        refused(&[1, 0, 0, 0, 1, b'x']);
        // `HTTP/1.1` is not flags and a length.
        refused(b"HTTP/1.1 200 OK");
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_in_any_pieces(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6), size in 1usize..9,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.push(piece);
                while let Some(Frame::Message(message)) = frames.next().unwrap() {
                    found.push(message);
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert!(frames.0.is_empty());
        }
    }
}
