//! Selects the pictures of a run for a model: those that a session displayed, and files of `/output`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::{Bytes, OutputFile, RichResult};

use crate::toolbox::{Call, Executed, Picture};

/// Pictures of one answer.
const MAX_PICTURES: usize = 4;
/// Length of one picture. Clients scale larger ones down, or refuse the answer.
const MAX_BYTES: u64 = 1 << 20;

/// The pictures of an answer, and a remark about each that is left out.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    pub(crate) shown: Vec<Picture>,
    pub(crate) left_out: Vec<String>,
}

impl Pictures {
    /// Selects pictures, in the order in which the run made them. None if no model reads the answer.
    pub(crate) async fn of(call: &Call<'_>, executed: &Executed) -> Self {
        let mut pictures = Self::default();
        if !call.caller.surface.is_read_by_model() {
            return pictures;
        }
        let meta = &executed.result.meta;
        for rich in &meta.results {
            pictures.add_result(rich);
        }
        // Else a file of the same name would be an older run's.
        if executed.keeps_output {
            for file in &meta.output_files {
                pictures.add_file(call, file).await;
            }
        }
        pictures
    }

    fn add_result(&mut self, rich: &RichResult) {
        let found = ["image/png", "image/jpeg"].into_iter().find_map(|mime| {
            let data = rich.data.get(mime)?.as_str()?;
            Some((mime, data))
        });
        let Some((mime, data)) = found else { return };
        let bytes = data.len() as u64 / 4 * 3;
        if self.has_room("a picture", bytes) {
            self.shown.push(Picture {
                mime,
                base64: data.to_owned(),
            });
        }
    }

    async fn add_file(&mut self, call: &Call<'_>, file: &OutputFile) {
        let name = file.path.to_ascii_lowercase();
        if ![".png", ".jpg", ".jpeg"].iter().any(|end| name.ends_with(end)) {
            return;
        }
        let path = format!("/output/{}", file.path);
        if !self.has_room(&path, file.bytes) {
            return;
        }
        // It may be gone or larger by now: another run of the conversation shares the directory.
        let read = call
            .files(path, |root, path| root.read_whole(path, MAX_BYTES))
            .await;
        let Ok(Some(bytes)) = read else { return };
        if let Some(mime) = kind(&bytes) {
            self.shown.push(Picture {
                mime,
                base64: STANDARD.encode(bytes),
            });
        }
    }

    fn has_room(&mut self, name: &str, bytes: u64) -> bool {
        let remark = if bytes > MAX_BYTES {
            let (bytes, most) = (Bytes(bytes), Bytes(MAX_BYTES));
            format!("{name} has {bytes} and is not shown: save it smaller than {most}")
        } else if self.shown.len() >= MAX_PICTURES {
            format!("{name} is not shown: an answer shows {MAX_PICTURES} pictures")
        } else {
            return true;
        };
        self.left_out.push(remark);
        false
    }
}

/// Detects the type of a file by its first bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_a_picture() {
        assert_eq!(kind(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        for other in [&b"<svg/>"[..], b"", b"\x89PNG", b"GIF89a"] {
            assert_eq!(kind(other), None);
        }
    }

    #[test]
    fn a_picture_too_large_or_too_many_is_named() {
        let mut pictures = Pictures::default();
        assert!(!pictures.has_room("/output/a.png", MAX_BYTES + 1));
        assert!(pictures.has_room("/output/b.png", MAX_BYTES));
        let one = Picture {
            mime: "image/png",
            base64: String::new(),
        };
        pictures.shown = vec![one; MAX_PICTURES];
        assert!(!pictures.has_room("/output/c.png", 1));
        assert!(
            pictures.left_out[0].starts_with("/output/a.png has 1"),
            "{pictures:?}"
        );
        assert_eq!(
            pictures.left_out[1],
            "/output/c.png is not shown: an answer shows 4 pictures"
        );
    }
}
