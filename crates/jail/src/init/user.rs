//! Users of a sandbox that has several: looked up in its own files by the process that becomes one.
//!
//! The files are the guest's. They are read with its rights, and decide about nothing but the process that reads them.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};

use super::files::FileOwner;
use super::frames::{BECOME_USER, LOOK_UP_USER};
use crate::step_error::{Step, StepError};
use crate::sys;

/// Maximum number of bytes that are read of each file.
const MAX: u64 = 1024 * 1024;

/// A user, with everything that a process needs to become this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
    /// Name of the user; `None` if it was given as a number without an entry in `/etc/passwd`.
    name: Option<String>,
    home: String,
}

impl User {
    /// Looks up a user by name or number. A number that no file names is a user in the group of the same number.
    pub(super) fn find(wanted: &str) -> Result<Self, StepError> {
        let find = || {
            let (users, groups) = (read("/etc/passwd")?, read("/etc/group")?);
            Self::of(wanted, &users, &groups).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        };
        find().step(LOOK_UP_USER)
    }

    fn of(wanted: &str, users: &str, groups: &str) -> Option<Self> {
        let wanted_uid = id(wanted);
        let entries = || users.lines().filter_map(Self::parse);
        let by_name = entries().find(|user| user.name.as_deref() == Some(wanted));
        let by_id = || entries().find(|user| Some(user.uid) == wanted_uid);
        let without_entry = |uid, home: &str| Self {
            uid,
            gid: uid,
            groups: Vec::new(),
            name: None,
            home: home.to_owned(),
        };
        let Some(mut user) = by_name.or_else(by_id) else {
            return match wanted {
                // The init is root, whether the files name it or not.
                "root" => Some(without_entry(0, "/root")),
                _ => wanted_uid.map(|uid| without_entry(uid, "/")),
            };
        };
        let is_member = |members: &str| {
            members
                .split(',')
                .any(|member| Some(member) == user.name.as_deref())
        };
        user.groups = groups
            .lines()
            .filter_map(|line| match line.split(':').collect::<Vec<_>>()[..] {
                [_, _, gid, members] if is_member(members) => id(gid),
                _ => None,
            })
            .collect();
        Some(user)
    }

    /// Parses a line of `/etc/passwd` (passwd(5)).
    fn parse(line: &str) -> Option<Self> {
        let [name, _, uid, gid, _, home, _] = line.split(':').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            uid: id(uid)?,
            gid: id(gid)?,
            groups: Vec::new(),
            name: Some(name.to_owned()),
            home: if home.is_empty() { "/" } else { home }.to_owned(),
        })
    }

    /// Returns the user as an owner of files.
    pub(super) const fn owner(&self) -> FileOwner {
        FileOwner {
            user: self.uid,
            group: self.gid,
        }
    }

    /// Makes the calling process this user's, with its standard streams, irrevocably.
    pub(super) fn enter(&self) -> Result<(), StepError> {
        self.enter_groups()?;
        sys::set_ids(self.uid, self.gid).step(BECOME_USER)
    }

    /// Takes the user's supplementary groups, and gives the user the standard streams, which fails if one of its two ids does
    /// not exist in the sandbox.
    pub(super) fn enter_groups(&self) -> Result<(), StepError> {
        // Programs open them anew as /dev/stdout, or by the terminal's name.
        self.give_streams()?;
        sys::set_groups(&self.groups).step(BECOME_USER)
    }

    fn give_streams(&self) -> Result<(), StepError> {
        let streams = (io::stdin(), io::stdout(), io::stderr());
        [streams.0.as_fd(), streams.1.as_fd(), streams.2.as_fd()]
            .into_iter()
            .try_for_each(|stream| fchown(stream, Some(self.uid), Some(self.gid)))
            .step(BECOME_USER)
    }

    /// Adds the user's variables that the environment lacks.
    pub(super) fn complete(&self, environment: &mut Vec<CString>) -> Result<(), StepError> {
        let home = Some(("HOME", self.home.as_str()));
        let names = ["USER", "LOGNAME"].map(|variable| Some((variable, self.name.as_deref()?)));
        for (variable, value) in names.into_iter().chain([home]).flatten() {
            let prefix = format!("{variable}=");
            if !environment
                .iter()
                .any(|own| own.as_bytes().starts_with(prefix.as_bytes()))
            {
                let added = CString::new(prefix + value).map_err(io::Error::from);
                environment.push(added.step(LOOK_UP_USER)?);
            }
        }
        Ok(())
    }
}

/// Parses a user or group id. The greatest number means "unchanged" to the kernel: its user would stay root.
fn id(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number)?;
    (number != u32::MAX).then_some(number)
}

/// Reads a file, which may be missing.
fn read(path: &str) -> io::Result<String> {
    let opened = OpenOptions::new()
        .read(true)
        // A pipe that nobody writes would be waited for.
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file: File = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:\nada:x:1000:1001:,,:/home/ada:/bin/sh\n\
                         33:x:34:34::/thirty-three:\nbroken:x\nwild:x:4294967295:0::/:\nsign:x:+5:0::/:\n";
    const GROUPS: &str = "root:x:0:root\nada:x:1001:\nwheel:x:10:root,ada\nvideo:x:44:ada,bob\nadam:x:45:adam\nall:x:-1:ada\nada\n";

    #[test]
    fn users_have_names_or_numbers() {
        let check = |wanted: &str, expected: Option<(u32, u32, &[u32], &str)>| {
            let found = User::of(wanted, USERS, GROUPS);
            let found = found
                .as_ref()
                .map(|user| (user.uid, user.gid, user.groups.as_slice(), user.home.as_str()));
            assert_eq!(found, expected, "{wanted}");
        };
        check("ada", Some((1000, 1001, &[10, 44], "/home/ada")));
        check("1000", Some((1000, 1001, &[10, 44], "/home/ada")));
        check("root", Some((0, 0, &[0, 10], "/root")));
        // Names come first.
        check("33", Some((34, 34, &[], "/thirty-three")));
        check("7", Some((7, 7, &[], "/")));
        for nobody in [
            "",
            "bob",
            "broken",
            "wild",
            "sign",
            "4294967295",
            "-1",
            "+5",
            " 5",
            "ada:x",
            "5\n",
        ] {
            check(nobody, None);
        }
    }

    #[test]
    fn root_needs_no_entry() {
        let root = User::of("root", "", "").unwrap();
        assert_eq!((root.uid, root.gid, root.home.as_str()), (0, 0, "/root"));
        // Where the files give it another id, they are believed.
        assert_eq!(User::of("root", "root:x:7:8::/:\n", "").unwrap().uid, 7);
    }

    #[test]
    fn variables_of_the_caller_stay() {
        let user = User::of("ada", USERS, GROUPS).unwrap();
        let mut environment = vec![c"USER=x".to_owned(), c"HOMES=y".to_owned()];
        user.complete(&mut environment).unwrap();
        assert_eq!(
            environment,
            [c"USER=x", c"HOMES=y", c"LOGNAME=ada", c"HOME=/home/ada"].map(ToOwned::to_owned)
        );
    }
}
