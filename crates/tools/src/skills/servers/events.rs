//! Parses server-sent events.

use std::time::Duration;

use ringfence_exec::lines::LineSplitter;

use super::wire::{MAX_MESSAGE, too_long};

/// Default delay before a reconnect; a server's `retry` is clamped to the other two.
const PAUSE: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);

/// Maximum length of an event id that is sent back on reconnect.
const MAX_ID: usize = 1024;

/// A parser of server-sent events, with the state needed to reconnect.
#[derive(Debug)]
pub struct Events {
    lines: LineSplitter,
    event: Event,
}

/// The state that lines change.
#[derive(Debug, Default)]
struct Event {
    data: Vec<u8>,
    has_data: bool,
    /// Ids of the current event and of the last complete one.
    id: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
    retry: Option<Duration>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            lines: LineSplitter::new(MAX_MESSAGE),
            event: Event::default(),
        }
    }
}

impl Events {
    /// Returns the id of the last event that has one, for `Last-Event-ID`.
    pub fn last(&self) -> Option<&[u8]> {
        self.event.last.as_deref()
    }

    /// Returns the delay before a reconnect.
    pub fn pause(&self) -> Duration {
        self.event
            .retry
            .map_or(PAUSE, |retry| retry.clamp(SHORTEST, LONGEST))
    }

    /// Parses a chunk, and returns the data of the events that it completes.
    ///
    /// # Errors
    /// If an event is too long.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut ended = Vec::new();
        self.lines.push(bytes);
        while let Some(line) = self.lines.next_line() {
            let line = line.whole().ok_or_else(too_long)?;
            self.event.check_room(line.len() + 1)?;
            ended.extend(self.event.end(line.trim_ascii_end()));
        }
        self.event.check_room(self.lines.pending())?;
        Ok(ended)
    }
}

impl Event {
    /// Checks that `more` bytes fit beside the event's data.
    fn check_room(&self, more: usize) -> Result<(), String> {
        match self.data.len() + more <= MAX_MESSAGE {
            true => Ok(()),
            false => Err(too_long()),
        }
    }

    fn end(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if line.is_empty() {
            self.last = self.id.take().or_else(|| self.last.take());
            let data = std::mem::take(&mut self.data);
            let whole = std::mem::take(&mut self.has_data) && !data.is_empty();
            return whole.then_some(data);
        }
        if let Some(data) = field(line, b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        } else if let Some(id) = field(line, b"id:").filter(|id| id.len() <= MAX_ID) {
            self.id = Some(id.to_vec());
        } else if let Some(retry) = field(line, b"retry:") {
            let millis = std::str::from_utf8(retry).ok().and_then(|text| text.parse().ok());
            self.retry = millis.map(Duration::from_millis).or(self.retry);
        }
        None
    }
}

/// Returns the value of the field `name`, if the line has it.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_out_however_it_was_cut() {
        let text = b": hi\r\nevent: message\r\nid: 1\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:\n\ndata:two\n\n\nevent: x\n\n";
        for size in [1, 3, 10, text.len()] {
            let mut events = Events::default();
            let taken: Vec<Vec<u8>> = text
                .chunks(size)
                .flat_map(|piece| events.take(piece).unwrap())
                .collect();
            assert_eq!(taken, [b"{\"a\":\n1}".to_vec(), b"two".to_vec()], "{size}");
        }
    }

    #[test]
    fn a_stream_says_where_and_when_another_goes_on() {
        let mut events = Events::default();
        assert_eq!((events.last(), events.pause()), (None, PAUSE));
        events
            .take(b"id: 7\ndata:\n\nretry: 500\nretry: soon\ndata: x\n\nid: 8\ndata: cut")
            .unwrap();
        let half = Duration::from_millis(500);
        assert_eq!((events.last(), events.pause()), (Some(b"7".as_slice()), half));
        let long = [b"id: ".as_slice(), &[b'x'; MAX_ID + 1], b"\n\nretry: 0\n"].concat();
        events.take(&[b"\n\n", long.as_slice()].concat()).unwrap();
        assert_eq!((events.last(), events.pause()), (Some(b"8".as_slice()), SHORTEST));
        events.take(b"retry: 18446744073709551615\n").unwrap();
        assert_eq!(events.pause(), LONGEST);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        let mut events = Events::default();
        let line = [b"data: ".as_slice(), &[b'x'; 100_000], b"\n"].concat();
        let refused = (0..100).find(|_| events.take(&line).is_err());
        assert!(refused.is_some_and(|at| at < 50));
        assert!(Events::default().take(&vec![b'x'; MAX_MESSAGE + 1]).is_err());
    }
}
