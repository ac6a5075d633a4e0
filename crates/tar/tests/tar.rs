//! Tests of archives: written, read, of other programs, and hostile.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test is a test, too"
)]

use std::io::{Read, Write};

use ringfence_tar::{Kind, Member, Reader, TarError, Writer};

/// Size of a block, of which archives consist.
const BLOCK: usize = 512;

fn member(path: &str, kind: Kind) -> Member {
    Member {
        path: path.into(),
        target: Vec::new(),
        kind,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        size: 0,
        modified: 1_700_000_000,
    }
}

/// Returns the members of an archive, with their contents.
fn read_all(archive: &[u8]) -> Result<Vec<(Member, Vec<u8>)>, TarError> {
    let (mut reader, mut members) = (Reader::new(archive), Vec::new());
    while let Some(member) = reader.member()? {
        let mut content = Vec::new();
        // Only the input's end can fail here.
        let read = reader.content().read_to_end(&mut content);
        read.map_err(|_| TarError::Truncated)?;
        members.push((member, content));
    }
    Ok(members)
}

fn archive(members: &[(Member, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (member, content) in members {
        writer.member(member).unwrap();
        writer.content(member.size, &mut &content[..]).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn members_are_read_as_they_are_written() {
    let members = [
        member("d/", Kind::Directory),
        Member {
            target: "t".repeat(150).into(),
            ..member("l", Kind::Symlink)
        },
        Member {
            target: b"first".to_vec(),
            ..member("hard", Kind::HardLink)
        },
        Member {
            size: 5,
            mode: 0o4755,
            ..member(&"p/ü".repeat(80), Kind::File)
        },
        Member {
            uid: u64::from(u32::MAX),
            gid: 0o1000_0000,
            ..member("ids", Kind::Fifo)
        },
        Member {
            size: 512,
            ..member(&"x".repeat(100), Kind::File)
        },
    ];
    let block = [7; 512];
    let contents: [&[u8]; 6] = [b"", b"", b"", b"hello", b"", &block];
    let all: Vec<_> = members.into_iter().zip(contents).collect();
    let archive = archive(&all);
    assert_eq!(archive.len() % BLOCK, 0);
    let read = read_all(&archive).unwrap();
    let expected: Vec<_> = all
        .into_iter()
        .map(|(member, content)| (member, content.to_vec()))
        .collect();
    assert_eq!(read, expected);
    let whole = String::from_utf8_lossy(&archive);
    assert!(whole.contains(&format!("linkpath={}\n", "t".repeat(150))));
}

#[test]
fn a_huge_size_fits() {
    let huge = Member {
        size: 1 << 40,
        ..member("huge", Kind::File)
    };
    let mut writer = Writer::new(Vec::new());
    writer.member(&huge).unwrap();
    let header = writer.finish().unwrap();
    assert_eq!(Reader::new(&header[..]).member().unwrap().unwrap(), huge);
}

#[test]
fn a_source_that_shrinks_or_grows_keeps_the_length() {
    let sized = |size| Member {
        size,
        ..member("file", Kind::File)
    };
    let read = read_all(&archive(&[(sized(5), b"abc"), (sized(2), b"abc")])).unwrap();
    assert_eq!(read[0].1, b"abc\0\0");
    assert_eq!(read[1].1, b"ab");
}

#[test]
fn gnu_long_names_and_old_directories_are_read() {
    let long = "n".repeat(300);
    let named = |letter: u8, text: &str| Member {
        size: text.len() as u64 + 1,
        ..member("././@LongLink", Kind::Other(letter))
    };
    let with_nul = format!("{long}\0");
    let archive = archive(&[
        (named(b'K', &long), with_nul.as_bytes()),
        (named(b'L', &long), with_nul.as_bytes()),
        (member("short", Kind::Symlink), b""),
        (member("old/", Kind::File), b""),
    ]);
    let read = read_all(&archive).unwrap();
    assert_eq!(
        (read[0].0.path.as_slice(), read[0].0.target.as_slice()),
        (long.as_bytes(), long.as_bytes())
    );
    assert_eq!((read.len(), read[1].0.kind), (2, Kind::Directory));
}

/// Replaces bytes of the first header and corrects its checksum.
fn changed(archive: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    archive[at..at + bytes.len()].copy_from_slice(bytes);
    archive[148..156].fill(b' ');
    let sum: u64 = archive[..BLOCK].iter().map(|byte| u64::from(*byte)).sum();
    archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive
}

#[test]
fn prefixes_and_binary_numbers_are_read() {
    let one = archive(&[(member("name", Kind::File), b"")]);
    let read = read_all(&changed(&one, 345, b"some/prefix")).unwrap();
    assert_eq!(read[0].0.path, b"some/prefix/name");
    let read = read_all(&changed(&one, 108, b"\x80\0\0\0\0\x01\0\0")).unwrap();
    assert_eq!(read[0].0.uid, 65_536);
}

#[test]
fn damaged_archives_are_refused() {
    let one = archive(&[(
        Member {
            size: 600,
            ..member("name", Kind::File)
        },
        &[1; 600],
    )]);
    for cut in [0, 1, 511, 512, 600, 1_200, 1_535, 1_536, 1_600] {
        assert!(read_all(&one[..cut]).is_err(), "{cut}");
    }
    assert!(
        read_all(&one[..1_536 + BLOCK]).is_ok(),
        "one empty block suffices"
    );
    let mut damaged = one.clone();
    damaged[0] ^= 1;
    assert!(matches!(read_all(&damaged), Err(TarError::Invalid(_))));
    let check = |at: usize, bytes: &[u8]| {
        let result = read_all(&changed(&one, at, bytes));
        assert!(
            matches!(result, Err(TarError::Invalid(_) | TarError::Truncated)),
            "{bytes:?} {result:?}"
        );
    };
    check(124, b"99999999999\0");
    check(124, &[0xff; 12]);
    check(124, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    check(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    check(100, b"rw-r--r-");
    assert!(matches!(
        read_all(&changed(&one, 156, b"S")),
        Err(TarError::Sparse)
    ));
}

#[test]
fn extended_headers_are_bounded_and_checked() {
    let extended = |records: &[u8]| {
        let header = Member {
            size: records.len() as u64,
            ..member("x", Kind::Other(b'x'))
        };
        read_all(&archive(&[(header, records), (member("name", Kind::File), b"")]))
    };
    let path = |read: Vec<(Member, Vec<u8>)>| read[0].0.path.clone();
    assert_eq!(path(extended(b"12 path=new\n").unwrap()), b"new");
    assert_eq!(
        path(extended(b"17 comment=a=b=c\n12 path=two\n").unwrap()),
        b"two"
    );
    for bad in [
        &b"12 path=new"[..],
        b"13 path=new\n",
        b"11 path=new\n",
        b"0 path=new\n",
        b"99999999999999999999999 path=new\n",
        b"path=new\n",
        b"9 pathnew\n",
        b"12 path=a/\0\n",
        b"16 linkpath=a\0b\n",
        b"11 size=-1\n",
        b"11 size=1x\n",
    ] {
        assert!(extended(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
    }
    assert!(matches!(
        extended(b"22 GNU.sparse.major=1\n"),
        Err(TarError::Sparse)
    ));
    let long = Member {
        size: 1 << 30,
        ..member("x", Kind::Other(b'x'))
    };
    let mut writer = Writer::new(Vec::new());
    writer.member(&long).unwrap();
    assert!(matches!(
        read_all(&writer.finish().unwrap()),
        Err(TarError::Invalid(_))
    ));
    let one = (member("g", Kind::Other(b'g')), &b""[..]);
    let many = vec![one; 20];
    assert!(matches!(read_all(&archive(&many)), Err(TarError::Invalid(_))));
}

/// Runs the tar of this machine.
#[expect(clippy::disallowed_methods, reason = "a test compares with another program")]
fn gnu_tar(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let mut tar = Command::new("tar")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(input).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

#[test]
fn gnu_tar_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("l".repeat(120)).join("m".repeat(120));
    std::fs::create_dir_all(&long).unwrap();
    std::fs::write(long.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("s".repeat(140), dir.path().join("link")).unwrap();
    for format in ["--format=gnu", "--format=posix"] {
        let archive = gnu_tar(
            &[format, "-C", dir.path().to_str().unwrap(), "-cf", "-", "."],
            b"",
        );
        let read = read_all(&archive).unwrap();
        let of_kind = |kind| read.iter().find(|(member, _)| member.kind == kind).unwrap();
        let file = of_kind(Kind::File);
        assert!(file.0.path.ends_with(b"/file") && file.0.path.len() > 240);
        assert_eq!(file.1, b"content");
        assert_eq!(of_kind(Kind::Symlink).0.target.len(), 140);
    }
    let path = "q/".repeat(100);
    let sized = Member {
        size: 2,
        ..member(&format!("{path}file"), Kind::File)
    };
    let listed = gnu_tar(
        &["-tf", "-"],
        &archive(&[(sized, b"hi"), (member("last", Kind::File), b"")]),
    );
    assert_eq!(String::from_utf8(listed).unwrap(), format!("{path}file\nlast\n"));
}
