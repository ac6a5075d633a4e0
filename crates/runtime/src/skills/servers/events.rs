//! Takes the data out of a stream of server-sent events.

use super::wire::{MAX_MESSAGE, too_long};

/// What has come of an event that has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// The data of the events that end in these bytes.
    ///
    /// # Errors
    /// If an event is too long.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut ended = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.line.len() + self.data.len() + piece.len() > MAX_MESSAGE {
                return Err(too_long());
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                ended.extend(self.end(line.trim_ascii_end()));
            }
        }
        Ok(ended)
    }

    fn end(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            let whole = std::mem::take(&mut self.has_data) && !data.is_empty();
            return whole.then_some(data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
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
    fn an_event_without_an_end_is_not_kept() {
        let mut events = Events::default();
        let line = [b"data: ".as_slice(), &[b'x'; 100_000], b"\n"].concat();
        let refused = (0..100).find(|_| events.take(&line).is_err());
        assert!(refused.is_some_and(|at| at < 50));
        assert!(Events::default().take(&vec![b'x'; MAX_MESSAGE + 1]).is_err());
    }
}
