//! Tests of the table: what commands do, and how their options are understood.

use crate::command::Effect;
use crate::shell;

/// Returns the worst effect of the line's only command.
fn effect(line: &str) -> Effect {
    let script = shell::parse(line).expect(line);
    let [shell::Node::Simple(simple)] = script.nodes.as_slice() else {
        panic!("{line}")
    };
    let findings = super::simple_findings(simple, &super::LineContext::default()).findings;
    let worst = findings.iter().map(|finding| finding.effect).max();
    worst.unwrap_or(Effect::Read)
}

fn harmless(lines: &[&str]) {
    for line in lines {
        assert!(effect(line).is_read_only(), "{line}: {:?}", effect(line));
    }
}

fn refused(lines: &[&str]) {
    for line in lines {
        assert!(!effect(line).is_read_only(), "{line}");
    }
}

fn at_least(least: Effect, lines: &[&str]) {
    for line in lines {
        assert!(effect(line) >= least, "{line}: {:?}", effect(line));
    }
}

#[test]
fn options_count_in_every_way_of_writing_them() {
    harmless(&[
        "sort -nrk2 -t, x",
        "sort --key=2 --reverse x",
        "sort -k 2 x",
        "uniq -c x",
        "ls -la --color=auto",
    ]);
    at_least(
        Effect::Write,
        &[
            "sort -o x",
            "sort -ox",
            "sort -nox y",
            "sort --output x",
            "sort --output=x y",
            "sort --outp=x y",
            "sort x -o x",
            "uniq a b",
            "xxd a b",
            "date -s 12:00",
            "tree -o x",
            "iconv -o x y",
            "yq -i .a x",
        ],
    );
    at_least(
        Effect::Code,
        &[
            "sort --compress-program=x y",
            "sort --compress-prog x y",
            "sort --comp=x y",
            "sort --compress-program x y",
        ],
    );
    refused(&[
        "sort --new-option x",
        "sort -Q x",
        "sort -k -ox y",
        "sort *.txt",
        "sort $x",
        "sort -- \"$x\"",
        "uniq --c x",
    ]);
    harmless(&["sort -- -o", "sort ./*.txt", "cat -- -n"]);
}

#[test]
fn find_is_judged_by_its_expression() {
    harmless(&[
        "find . -name '*.rs' -type f -mtime -7 -print0",
        "find . \\( -name a -o -name b \\) ! -empty",
        "find . -type f -name '*.rs' -exec grep -l x {} +",
        "find . -exec echo -delete \\;",
    ]);
    at_least(
        Effect::Destroy,
        &[
            "find . -delete",
            "find . -fprint x",
            "find . -fprintf x %p",
            "find . -fls x",
            "find . -exec rm {} \\;",
            "find . -execdir rm -rf {} +",
            "find . -name x -exec true \\; -exec rm {} \\;",
            "find . -ok rm {} \\;",
        ],
    );
    at_least(
        Effect::Code,
        &[
            "find . -exec sh -c 'cat {}' \\;",
            "find . -exec {} \\;",
            "find . -exec python {} \\;",
        ],
    );
    at_least(
        Effect::Secret,
        &[
            "find ~ -exec cat {} +",
            "find . -name id_rsa -exec cat {} +",
            "find / -type f -exec head {} \\;",
        ],
    );
    refused(&[
        "find . -exec",
        "find . -newoption",
        "find $x",
        "find . -exec sort -o {} {} \\;",
    ]);
}

#[test]
fn wrappers_are_judged_by_what_they_wrap() {
    harmless(&[
        "env ls",
        "nice -n 5 ls",
        "timeout 5 ls",
        "stdbuf -oL cat x",
        "command ls",
        "env nice timeout -k 1 5 cat x",
        "bash -c 'ls | wc'",
    ]);
    at_least(
        Effect::Destroy,
        &[
            "env rm x",
            "env -i FOO=bar rm x",
            "nice rm x",
            "timeout 5 rm x",
            "nohup rm x",
            "setsid rm x",
            "stdbuf -o0 rm x",
            "command -p rm x",
            "xargs rm",
            "xargs -0 -n 1 rm -f",
            "xargs -I{} rm {}",
            "sudo rm x",
            "sudo -u root -- rm x",
            "busybox rm x",
            "bash -c 'ls; rm x'",
            "sh -ec 'rm x'",
            "bash -c \"bash -c 'rm x'\"",
            "parallel rm",
            "env nice timeout 5 xargs rm",
            "doas rm x",
        ],
    );
}

#[test]
fn what_runs_code_that_is_not_seen_or_changes_the_shell_is_told() {
    at_least(
        Effect::Code,
        &[
            "bash x.sh",
            "bash",
            "bash -c \"$x\"",
            "bash -ic ls",
            "bash --rcfile x -c ls",
            "env -S 'rm x'",
            "eval ls",
            "source x",
            ". x",
            "exec ls",
            "watch ls",
            "python -c 1",
            "perl -e 1",
            "sh -c \"cat \\$'a\\\\'; rm x; echo \\\\''\"",
            "zsh -c ls",
            "xargs sh -c 'cat $0'",
            "xargs bash -c cat",
            "env LD_PRELOAD=x ls",
            "env PATH=. ls",
            "script x",
            "ssh-agent ls",
            "fzf --bind enter:execute:id",
            "fzf --bind='x:become(id)'",
            "fzf --preview id",
            "fzf --prev id",
            "node -e 1",
            "sudo ls",
        ],
    );
    at_least(
        Effect::Shell,
        &[
            "cd x",
            "export A=b",
            "alias ls=rm",
            "env -C x ls",
            "env A=b ls",
            "set -x",
            "read PATH",
            "mapfile -C rm x",
        ],
    );
    refused(&[
        "xargs",
        "xargs sort",
        "nice --weird ls",
        "env nice env nice env nice env nice env nice ls",
    ]);
}

#[test]
fn scripts_within_arguments_are_read() {
    harmless(&[
        "sed -n 1,5p x",
        "sed 's/a/b/g' x",
        "gawk '{print $1}' x",
        "gawk -F: '$3 > 10' x",
        "jq .a x",
        "sqlite3 -readonly x 'SELECT 1'",
    ]);
    refused(&[
        "sed 'w x' y",
        "sed -n '1e id' x",
        "sed s/a/b/e x",
        "sed -f x y",
        "sed \"$x\" y",
        "sed -e p -e 'w x' y",
        "sed -ne 'w x' y",
        "sed --expression='w x' y",
        "awk 'BEGIN{system(\"id\")}'",
        "awk '{print | \"sh\"}' x",
        "awk '{print > \"x\"}' y",
        "awk 'BEGIN{\"id\" | getline}'",
        "awk -f x y",
        "awk '@load \"x\"'",
        "awk -i inplace 1 x",
        "awk 'BEGIN{f=\"sys\"\"tem\"; @f(\"id\")}'",
        "sqlite3 x '.shell id'",
        "sqlite3 x 'DROP TABLE t'",
        "psql -c 'SELECT 1' -f x",
        "mysql -e 'DELETE FROM t'",
    ]);
    at_least(
        Effect::Write,
        &[
            "sed -i s/a/b/ x",
            "sed -i.bak s/a/b/ x",
            "sed --in-place=x p y",
            "sed -ni p x",
            "sed p x -i",
        ],
    );
}

#[test]
fn git_is_judged_by_subcommand_and_option() {
    harmless(&[
        "git status",
        "git log --oneline -10",
        "git diff --stat main..x",
        "git show HEAD:x",
        "git branch -a",
        "git branch --list 'x*'",
        "git tag",
        "git stash list",
        "git remote",
        "git config --get user.name",
        "git --no-pager log",
        "git rev-parse HEAD",
        "git ls-files -m",
    ]);
    refused(&[
        "git -c core.pager=x log",
        "git -C x status",
        "git --git-dir=x log",
        "git log --output=x",
        "git log --outp x",
        "git diff --ext-diff",
        "git branch x",
        "git branch -m a b",
        "git tag v1",
        "git config user.name x",
        "git config --global alias.x '!id'",
        "git stash",
        "git ls-remote --upload-pack=x origin",
        "git ls-remote ext::sh",
        "git grep -O x",
        "git archive -o x HEAD",
        "git notes edit",
        "git remote set-url a b",
        "git reflog expire --all",
        "git bisect run x",
        "git frobnicate",
        "git \"$x\"",
        "git config edit",
        "git symbolic-ref HEAD x",
        "git help ./x",
        "git remote -v",
        "git config --list",
        "git config --get remote.origin.url",
        "git config --get http.proxy",
        "git var -l",
        "git clone -u x y",
        "git fetch ext::x",
        "git rebase -x id",
    ]);
    at_least(
        Effect::Destroy,
        &[
            "git reset --hard",
            "git clean -fd",
            "git push -f",
            "git push --force origin",
            "git push origin +main",
            "git push origin :x",
            "git push --mirror",
            "git checkout -- .",
            "git checkout -f",
            "git branch -D x",
            "git stash drop",
            "git -C x reset --hard",
        ],
    );
}

#[test]
fn clients_of_services_may_ask() {
    harmless(&[
        "docker ps -a",
        "docker compose -f x.yml logs web",
        "kubectl get pods -n x -o wide",
        "kubectl -n x logs y",
        "helm list -A",
        "aws ec2 describe-instances --region x",
        "aws s3 ls",
        "gcloud --project x compute instances list",
        "az vm list -g x",
        "gh pr list",
        "npm ls --depth=0",
        "pip list",
        "systemctl status nginx",
        "journalctl -u x -n 50",
        "ip -br a",
        "brew list",
        "terraform version",
    ]);
    at_least(
        Effect::Secret,
        &[
            "kubectl get secret x -o yaml",
            "kubectl get pods,secrets",
            "aws secretsmanager get-secret-value --secret-id x",
            "gh auth token",
            "aws sts get-session-token",
            "az keyvault secret show -n x",
            "gcloud auth print-access-token",
            "kubectl get --raw /api",
            "aws ssm get-parameter --name x --with-decryption",
            "kubectl config view --raw",
        ],
    );
    refused(&[
        "docker -H tcp://x ps",
        "kubectl --kubeconfig x get pods",
        "aws --endpoint-url http://x s3 ls",
        "kubectl delete pod list",
        "gcloud compute instances delete list",
        "gcloud compute instances --quiet delete x",
        "az vm delete --name list",
        "docker run x",
        "docker exec x ls",
        "docker compose exec x sh",
        "aws s3api get-object --bucket b --key k out",
        "gh api -X DELETE x",
        "gh api x -f a=b",
        "gh pr view --web",
        "npm install",
        "npm run x",
        "systemctl -H x status y",
        "systemctl restart x",
        "journalctl --vacuum-size=1",
        "ip link set x up",
        "ip a add 1.2.3.4 dev x",
        "ip netns exec x sh",
        "helm template x y --post-renderer z",
        "pip install x",
        "docker compose config -o x",
        "aws configure get x",
        "terraform plan",
        "brew services start x",
        "kubectl diff -f x",
    ]);
}

#[test]
fn secrets_are_not_shown() {
    at_least(
        Effect::Secret,
        &[
            "cat .env",
            "cat ~/.ssh/id_rsa",
            "cat /etc/shadow",
            "head ~/.aws/credentials",
            "cat ~/.ss*/id_*",
            "cat *",
            "cat ~/.[s]sh/x",
            "cat i?_rsa",
            "git show HEAD:.env",
            "grep -f .env x",
            "grep --exclude-from .env x y",
            "awk 1 ~/.ssh/id_rsa",
            "diff a .env",
            "cat /proc/self/environ",
            "grep -r x ~",
            "grep -R x /etc",
            "rg x /home/ann",
            "cat ./SERVER.KEY",
            "cat /dev/sda",
            "base64 -w0 id_ed25519",
            "cat ~/.config/gh/x",
            "grep -f.env x",
            "rg -g '.env*' x",
            "find . -name '.env*' -exec cat {} +",
            "git log -p -- '.en*'",
            "cat config/secrets.yml",
            "ps auxe",
            "ls ~/.ssh",
            "npm config get //x/:_authToken",
        ],
    );
    harmless(&[
        "cat x.txt",
        "cat .env.example",
        "grep -r x src",
        "cat *.txt",
        "ls *",
        "ls -la ~",
        "openssl x509 -in cert.pem -noout",
    ]);
}

#[test]
fn programs_are_known_by_the_names_of_the_system_only() {
    harmless(&[
        "/bin/ls",
        "/usr/bin/env ls",
        "ls --help",
        "docker --version",
        "python3.12 --version",
        "gh pr list --help",
    ]);
    refused(&[
        "./ls",
        "bin/ls",
        "/tmp/ls",
        "~/ls",
        "l\u{455} x",
        "frobnicate",
        "frobnicate --help",
        "cargo --help-me",
        "../ls",
        "/usr/bin/../../tmp/ls",
    ]);
    at_least(
        Effect::Code,
        &["$x", "$(echo rm) x", "l* x", "{ls,-l}", "yarn --version"],
    );
}

#[test]
fn what_writes_without_a_name_of_writing_has_its_floor() {
    at_least(
        Effect::Write,
        &[
            "scp h:f f",
            "scp h:/etc/x .",
            "scp f h:f",
            "scp -P 22 h:f f",
            "rcp h:f f",
            "rsync h:f f",
            "rsync f h:f",
            "sftp h",
            "ssh-copy-id h",
            "tftp h",
            "yt-dlp https://example.com/x",
            "sendmail bob",
            "logger x",
            "wall x",
            "write bob",
        ],
    );
}

#[test]
fn fetching_is_asking_one_public_host() {
    harmless(&["curl -s https://example.com/x", "curl -I https://example.org"]);
    at_least(
        Effect::Network,
        &[
            "curl https://example.com/?x=y",
            "curl -L https://example.com",
            "curl http://169.254.169.254/",
            "curl -H 'a: b' https://example.com",
            "curl -o x https://example.com",
            "curl -d @x https://example.com",
            "curl -X POST https://example.com",
            "curl -K x https://example.com",
            "curl https://example.com https://example.org",
            "curl -w '%output{x}' https://example.com",
            "curl -x p https://example.com",
            "ping x.org",
            "curl file:///etc/passwd",
            "curl -F a=@b https://example.com",
            "curl -T x https://example.com",
            "curl --data=x https://example.com",
        ],
    );
}

#[test]
fn deleting_and_overwriting_are_told() {
    at_least(
        Effect::Destroy,
        &[
            "rm x",
            "rm -rf x",
            "dd if=a of=b",
            "shred x",
            "truncate -s 0 x",
            "kubectl delete pod x",
            "docker system prune",
            "chmod -R 0 x",
        ],
    );
    at_least(
        Effect::Ruin,
        &[
            "rm -rf /",
            "rm -fr ~",
            "rm -r /*",
            "dd if=x of=/dev/sda",
            "mkfs.ext4 /dev/sda1",
        ],
    );
}
