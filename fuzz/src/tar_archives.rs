//! The target of tar archives.

use ringfence_tar as tar;

/// A pax header with its records, a file with content, and a link, without checksums.
pub(crate) const SEED: [u8; 2560] = {
    let mut bytes = [0; 2560];
    put(&mut bytes, 0, b"extended");
    put(&mut bytes, 124, b"00000000026\0");
    put(&mut bytes, 156, b"x");
    put(&mut bytes, 257, b"ustar\x0000");
    put(&mut bytes, 512, b"13 path=a/bc\n9 uid=12\n");
    put(&mut bytes, 1024, b"name");
    put(
        &mut bytes,
        1124,
        b"0000644\x000001750\x000000144\x0000000000005\x0014512345670\0",
    );
    put(&mut bytes, 1024 + 156, b"0");
    put(&mut bytes, 1536, b"hello");
    put(&mut bytes, 2048, b"link");
    put(&mut bytes, 2048 + 156, b"2../target");
    bytes
};

const fn put(bytes: &mut [u8; 2560], at: usize, text: &[u8]) {
    let mut index = 0;
    while index < text.len() {
        bytes[at + index] = text[index];
        index += 1;
    }
}

/// An archive is read without a panic or unbounded memory, unchanged and with corrected checksums. Members
/// that were read are written and read again unchanged.
pub(crate) fn run(input: &[u8]) {
    let _ = read_members(input);
    let mut summed = input.to_vec();
    // Mutated bytes are not a header unless their sum is corrected; in contents it does no harm.
    for block in summed.chunks_exact_mut(512) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    for member in read_members(&summed) {
        let mut writer = tar::Writer::new(Vec::new());
        writer.member(&member).expect("memory takes all");
        let archive = writer.finish().expect("memory takes all");
        let again = tar::Reader::new(&archive[..]).member();
        let again = again
            .expect("what was written can be read")
            .expect("it is a member");
        // Later times than a header holds are its latest.
        let modified = again.modified;
        assert_eq!(again, tar::Member { modified, ..member });
    }
}

fn read_members(archive: &[u8]) -> Vec<tar::Member> {
    let (mut reader, mut members) = (tar::Reader::new(archive), Vec::new());
    while let Ok(Some(member)) = reader.member() {
        members.push(member);
        let copied = std::io::copy(&mut reader.content(), &mut std::io::sink());
        assert!(copied.is_err() || copied.is_ok_and(|copied| copied <= archive.len() as u64));
    }
    members
}
