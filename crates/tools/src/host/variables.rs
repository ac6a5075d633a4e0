//! Variables in the words of a line, and the values that the line assigns.

/// Returns `true` if a word of a line holds a variable with a value that can be more than the name of one visible
/// file: a glob in its place does not find what the word stands for.
pub(super) fn compute_paths(line: &str) -> bool {
    let behind = line.split('$').skip(1);
    let named = |rest: &&str| !rest.is_empty() && !rest.starts_with(['?', '#', '!', '\'', '"']);
    let mut used = behind.filter(named);
    used.any(|rest| name(rest).is_none_or(|name| !is_plain_variable(name, line)))
}

/// Returns the name of the variable that a text begins with; `None` for an expansion that is more, and for
/// parameters of the shell.
fn name(rest: &str) -> Option<&str> {
    let name = match rest.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?.0,
        None => {
            let end = rest.find(|sign: char| !is_name(sign)).unwrap_or(rest.len());
            &rest[..end]
        }
    };
    let is_plain = name.chars().all(is_name) && name.starts_with(|sign: char| sign.is_ascii_alphabetic());
    is_plain.then_some(name)
}

fn is_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// Returns `true` if the line alone sets the variable, by assignments and loops, to plain names; unset it is
/// empty. Names in capitals are the shell's and its caller's, of which two are known.
fn is_plain_variable(name: &str, line: &str) -> bool {
    if ["HOME", "PWD"].contains(&name) {
        return !line.contains(&format!("{name}="));
    }
    if name.contains(|sign: char| sign.is_ascii_uppercase()) {
        return false;
    }
    let words: Vec<&str> = line
        .split(|sign: char| sign.is_whitespace() || ";&|()".contains(sign))
        .collect();
    words.iter().enumerate().all(|(at, word)| {
        let word = word.trim_start_matches(['"', '\'']);
        match word.strip_prefix(name) {
            Some("") if at > 0 && words[at - 1] == "for" => {
                let values = words[at + 1..].iter().skip_while(|word| **word == "in");
                values
                    .take_while(|word| **word != "do")
                    .all(|word| is_name_of_a_file(word))
            }
            // A builtin sets it, as `read` does.
            Some("") => false,
            Some(rest) => match rest.trim_start_matches('+').strip_prefix('=') {
                Some(value) => is_name_of_a_file(value),
                None => !rest.starts_with('['),
            },
            None => true,
        }
    })
}

fn is_name_of_a_file(value: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-.*?".contains(sign);
    !value.starts_with('.') && value.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_can_hold_a_path_is_told_from_a_name() {
        for line in [
            "bash job$n.sh",
            "n=1; bash job$n.sh",
            "for d in a b; do make -C $d/sub; done",
            "for f in *.sh; do bash ./$f; done",
            "bash $HOME/x.sh",
            "bash ${PWD}/x.sh",
            "echo $? $$",
        ] {
            assert!(!compute_paths(line), "{line}");
        }
        for line in [
            "x=..; bash $x/job.sh",
            "x=/../..; bash job$x/y.sh",
            "x=.h; bash $x/y",
            "for d in ../a b; do make -C $d/sub; done",
            "for d in $(ls); do make -C $d/sub; done",
            "read d; make -C ./$d",
            "n=1; read n; bash job$n.sh",
            "printf -v n ../x; bash ./$n.sh",
            "bash $TMPDIR/x.sh",
            "bash $OLDPWD/x.sh",
            "HOME=/x; bash $HOME/y",
            "bash ${x:-../y}/z",
            "bash ./$1",
            "bash ./${!x}",
            "n='a b'; bash ./$n",
        ] {
            assert!(compute_paths(line), "{line}");
        }
    }
}
