//! Tests of the redactor: encodings, formats, and both in truncated text.

use proptest::prelude::*;

use super::*;

const SECRET: &str = "hunter2/+ \"x\"";

fn redactor() -> Redactor {
    Redactor::new([
        ("DB_PASSWORD", SECRET),
        ("OTHER", "abcdefghij"),
        ("NEXT", "ghijklmnop"),
        ("PERIODIC", "ababab"),
    ])
}

#[track_caller]
fn expect(text: &str, expected: &str) {
    assert_eq!(redactor().redact(text), expected);
}

/// Samples of every encoding and format, each with its expected output. Tokens are assembled here so that no
/// scanner takes this file for a leak.
fn samples() -> Vec<(String, String)> {
    let word = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    let hex = "0123456789abcdef".repeat(3);
    let shapes = [
        (format!("AKIA{}", "ABCDEFGH12345678"), "aws-access-key"),
        (format!("ghp_{}", &word[..36]), "github-token"),
        (format!("github_pat_{word}_{word}"), "github-token"),
        (format!("glpat-{}", &word[..20]), "gitlab-token"),
        (format!("rf_{}_{}", &hex[..8], &hex[..48]), "ringfence-key"),
        (format!("e2b_{}", &hex[..40]), "e2b-key"),
        (format!("sk-ant-api03-{word}-{word}"), "anthropic-key"),
        (format!("sk-proj-{word}_{word}"), "openai-key"),
        (format!("sk-{word}"), "openai-key"),
        (format!("xoxb-{}", "123456789012-abcdef"), "slack-token"),
        (format!("AIza{}", &word[..35]), "google-api-key"),
        (format!("eyJ{word}.eyJ{word}.{word}"), "jwt"),
        (format!("{}:{}", "1234567890", &word[..35]), "telegram-token"),
        (format!("npm_{}", &word[..36]), "npm-token"),
        (format!("hf_{}", &word[..34]), "huggingface-token"),
        (format!("pypi-AgEI{word}{word}"), "pypi-token"),
        (format!("sk_live_{}", &word[..24]), "stripe-key"),
        (
            format!("-----BEGIN RSA PRIVATE KEY-----\n{word}\n{word}==\n-----END RSA PRIVATE KEY-----"),
            "private-key",
        ),
    ];
    let mut samples: Vec<(String, String)> = Vec::new();
    for (secret, label) in shapes {
        samples.push((
            format!("token is {secret}, done\n"),
            format!("token is [redacted:{label}], done\n"),
        ));
        samples.push((format!("x={secret}"), format!("x=[redacted:{label}]")));
    }
    let pairs = shaped().into_iter().chain(known());
    samples.extend(pairs.map(|(text, clean)| (text.to_owned(), clean.to_owned())));
    samples
}

/// Formats with their expected output.
fn shaped() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "Authorization: Bearer abcdefgh\n",
            "Authorization: Bearer [redacted:authorization]\n",
        ),
        (
            "{\"authorization\": \"Basic dXNlcjpwYXNz\"}",
            "{\"authorization\": \"Basic [redacted:authorization]\"}",
        ),
        (
            "https://a.test/x?n=1&access_token=abcd&api_key=efgh#x",
            "https://a.test/x?n=1&access_token=[redacted:url-parameter]&api_key=[redacted:url-parameter]#x",
        ),
        (
            "{\"user\": \"ann\", \"client_secret\": \"pa55\", \"n\": 1}",
            "{\"user\": \"ann\", \"client_secret\": \"[redacted:json-member]\", \"n\": 1}",
        ),
        (
            "password = \"pa55 w0rd\"\n",
            "password = \"[redacted:literal]\"\n",
        ),
        ("db_passwd: str = 'pa55'", "db_passwd: str = '[redacted:literal]'"),
        (
            "connect(api_key='pa55', n=1)",
            "connect(api_key='[redacted:literal]', n=1)",
        ),
        (
            "os.environ['MY_TOKEN'] = b'pa55'",
            "os.environ['MY_TOKEN'] = b'[redacted:literal]'",
        ),
        ("if secret == \"pa55\":", "if secret == \"[redacted:literal]\":"),
        ("client-secret: \"pa55\"", "client-secret: \"[redacted:literal]\""),
        (
            "export DB_PASSWORD=pa55 N=1",
            "export DB_PASSWORD=[redacted:variable] N=1",
        ),
        (
            "postgres://user:pa55!@host:5432/db ok",
            "postgres://user:[redacted:url-password]@host:5432/db ok",
        ),
    ]
}

/// Known values with their expected output.
fn known() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "it is hunter2/+ \"x\" there",
            "it is [redacted:DB_PASSWORD] there",
        ),
        ("68756e746572322f2b2022782220", "[redacted:DB_PASSWORD]20"),
        ("68:75:6E:74:65:72:32:2F:2B:20:22:78:22", "[redacted:DB_PASSWORD]"),
        (
            "b'\\x68\\x75\\x6e\\x74\\x65\\x72\\x32\\x2f\\x2b\\x20\\x22\\x78\\x22'",
            "b'\\x[redacted:DB_PASSWORD]'",
        ),
        (
            "%68%75%6e%74%65%72%32%2F%2b%20%22%78%22",
            "%[redacted:DB_PASSWORD]",
        ),
        (
            "['0x68', '0x75', '0x6e', '0x74', '0x65', '0x72', '0x32', '0x2f', '0x2b', '0x20', '0x22', '0x78', '0x22']",
            "['0x[redacted:DB_PASSWORD]']",
        ),
        (
            "<68 75 6e 74 65 72 32 2f 2b 20 22 78 22>",
            "<[redacted:DB_PASSWORD]>",
        ),
        ("NB2W45DFOIZC6KZAEJ4CE===", "[redacted:DB_PASSWORD]E==="),
        ("nb2w45dfoizc6kzaej4ce===", "[redacted:DB_PASSWORD]e==="),
        ("hunter2%2F%2B%20%22x%22", "[redacted:DB_PASSWORD]"),
        ("hunter2/%2B%20%22x%22", "[redacted:DB_PASSWORD]"),
        ("q=hunter2%2f%2b+%22x%22&r", "q=[redacted:DB_PASSWORD]&r"),
        (
            "{\"p\": \"hunter2/+ \\\"x\\\"\"}",
            "{\"p\": \"[redacted:DB_PASSWORD]\"}",
        ),
        ("<abcdefghijklmnop>", "<[redacted:OTHER]>"),
        ("abcdefghij ghijklmnop", "[redacted:OTHER] [redacted:NEXT]"),
        ("cababababababc", "c[redacted:PERIODIC]c"),
        ("größe abcdefghij größe", "größe [redacted:OTHER] größe"),
    ]
}

#[test]
fn every_form_and_shape_is_replaced() {
    for (text, clean) in samples() {
        expect(&text, &clean);
    }
}

#[test]
fn base64_is_found_at_every_alignment_of_a_longer_text() {
    // base64 of `SECRET` after zero, one and two other bytes, followed by another byte.
    for text in [
        "aHVudGVyMi8rICJ4IiE=",
        "IWh1bnRlcjIvKyAieCIh",
        "ISFodW50ZXIyLysgIngiIQ==",
    ] {
        let clean = redactor().redact(text).into_owned();
        assert!(clean.contains("[redacted:DB_PASSWORD]"), "{clean}");
        assert!(clean.len() <= "[redacted:DB_PASSWORD]".len() + 8, "{clean}");
    }
}

#[test]
fn a_known_value_is_found_across_line_breaks() {
    // Wrapped as by `base64 -w 8` and `xxd -p -c 10`.
    expect(
        "a\naHVudGVy\nMi8rICJ4\nIg==\nb\n",
        "a\n[redacted:DB_PASSWORD]g==\nb\n",
    );
    expect(
        "\n68756e746572322f2b20\r\n227822\nb",
        "\n[redacted:DB_PASSWORD]\nb",
    );
    expect(
        "abcde\nfghij\nabcdefghij\nb",
        "[redacted:OTHER]\n[redacted:OTHER]\nb",
    );
}

#[test]
fn ordinary_text_stays_as_it_is() {
    for text in [
        "the task-force-has-a-very-long-hyphenated-name and sk-like-words-without-any-digits-at-all",
        "see https://example.com:8080/path@2x.png and mailto:someone@example.com",
        "Authorization: required; bearer of good news",
        "2026-11-21T22:15:00.123Z 1234567890 0x1f 12:34:56",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG\n-----END CERTIFICATE-----",
        "eyJust a word. hf_hub npm_config_registry ghp_ AKIA AIza",
        "",
    ] {
        assert!(
            matches!(redactor().redact(text), Cow::Borrowed(_)),
            "{}",
            redactor().redact(text)
        );
    }
}

#[test]
fn debug_output_hides_the_values() {
    let text = format!("{:?}", redactor());
    assert!(text.contains("DB_PASSWORD"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("104, 117"), "{text}");
}

#[test]
fn values_that_say_nothing_are_left_out() {
    let redactor = Redactor::new([
        ("A", "true"),
        ("B", "12345"),
        ("C", "********"),
        ("D", "Default"),
        ("E", "   "),
    ]);
    let text = "true 12345 ******** Default";
    assert_eq!(redactor.redact(text), text);
}

#[test]
fn a_private_key_without_its_end_is_still_replaced() {
    let text = "key:\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEA\n... (output truncated)";
    expect(text, "key:\n[redacted:private-key]\n... (output truncated)");
}

#[test]
fn the_environment_is_sorted_by_name_and_value() {
    let vars = [
        ("GITHUB_TOKEN", "plain-token-1"),
        ("PGPASSWORD", "plain-token-2"),
        ("SENTRY_DSN", "plain-token-3"),
        ("OPENAI_API_KEY", "plain-token-4"),
        ("CONNECTION", "mysql://root:plain-token-5@db/x"),
        ("DATABASE_URL", "sqlite:plain-token-6"),
        ("SSH_AUTH_SOCK", "/tmp/plain-path-7"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/plain-path-8"),
        ("HOME", "/home/plain-path-9"),
        ("PWD", "/srv/plain-path-10"),
        ("KEYBOARD", "plain-word-11"),
    ];
    let redactor = Redactor::from_environment(vars.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let text = vars.map(|(_, value)| value).join(" ");
    assert_eq!(
        redactor.redact(&text),
        "[redacted:GITHUB_TOKEN] [redacted:PGPASSWORD] [redacted:SENTRY_DSN] [redacted:OPENAI_API_KEY] \
         mysql://root:[redacted:CONNECTION]@db/x [redacted:DATABASE_URL] /tmp/plain-path-7 /etc/plain-path-8 \
         /home/plain-path-9 /srv/plain-path-10 plain-word-11"
    );
}

#[test]
fn a_long_value_is_found_in_every_piece() {
    let value: String = (0..1_000).map(|n| format!("{n:04x}-")).collect();
    let redactor = Redactor::new([("LONG", value.as_str())]);
    assert_eq!(redactor.redact(&value), "[redacted:LONG]".repeat(3));
    assert_eq!(
        redactor.redact_cut(&value[..3_000], &[]),
        "[redacted:LONG]".repeat(2)
    );
}

#[test]
fn further_variables_join_what_is_known() {
    let redactor = redactor().with_environment([
        ("GITHUB_TOKEN".to_owned(), "user:abcdefghij".to_owned()),
        ("MODE".to_owned(), "plain-text".to_owned()),
    ]);
    // The whole value is redacted, not only the known value inside it.
    assert_eq!(
        redactor.redact("(user:abcdefghij) abcdefghij plain-text"),
        "([redacted:GITHUB_TOKEN]) [redacted:OTHER] plain-text"
    );
}

/// Redacts `text` with a gap at each `|`.
#[track_caller]
fn expect_cut(text: &str, expected: &str) {
    let gaps: Vec<Range<usize>> = text.match_indices('|').map(|(at, _)| at..at + 1).collect();
    assert_eq!(redactor().redact_cut(text, &gaps), expected, "{text}");
}

#[test]
fn parts_of_known_values_at_a_gap_are_replaced() {
    expect_cut("x abcd| y", "x [redacted:OTHER]| y");
    expect_cut("x| hij y", "x| hij y");
    expect_cut("x abc|ghij y", "x abc|[redacted:OTHER] y");
    expect_cut("x|fghij y", "x|[redacted:OTHER] y");
    expect_cut("ends in hunter2%2F", "ends in [redacted:DB_PASSWORD]");
    expect_cut(
        "hunter2|hunter2|\"x\"",
        "[redacted:DB_PASSWORD]|[redacted:DB_PASSWORD]|\"x\"",
    );
    expect_cut("so %68%75%6e%74%65|", "so %[redacted:DB_PASSWORD]|");
    expect_cut("x|:2F:2B:20:22:78:22 y", "x|[redacted:DB_PASSWORD] y");
    // Only a part that touches the gap is redacted.
    expect_cut("fghij abcd |.fghij.", "fghij abcd |.fghij.");
    expect_cut("", "");
    expect_cut("||", "||");
}

#[test]
fn shapes_at_a_gap_are_replaced() {
    expect_cut(
        "a ghp_a1|c3 b",
        "a [redacted:cut-credential]|[redacted:cut-credential] b",
    );
    expect_cut("a sk-|x", "a [redacted:cut-credential]|[redacted:cut-credential]");
    expect_cut(
        "Authorization: Basic |QWxh\n",
        "Authorization: Basic |[redacted:cut-credential]\n",
    );
    expect_cut("sk- ok|ok", "sk- ok|ok");
}

#[test]
fn a_cut_anywhere_in_a_credential_leaves_no_more_than_its_heading() {
    let word = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let header = "Authorization: Basic ";
    for (heading, secret, kept) in [
        ("ghp_", word, ""),
        ("github_pat_", word, ""),
        ("sk-ant-", word, ""),
        ("AKIA", "ABCDEFGH12345678", ""),
        ("eyJ", "hbGciOiJ9.eyJzdWIiOiIxIn0.abcdefghijk", ""),
        ("12345678:", word, ""),
        (header, "dXNlcjpwYXNz", header),
        ("postgres://ann:", "pa55-w0rd", "postgres://ann:"),
        ("?api_key=", "pa55-w0rd", "?api_key="),
        ("{\"password\": \"", "pa55-w0rd", "{\"password\": \""),
        ("password = '", "pa55-w0rd", "password = '"),
        ("DB_PASSWORD=", "pa55-w0rd", "DB_PASSWORD="),
    ] {
        for at in 1..secret.len() {
            let text = format!("{heading}{}", &secret[..at]);
            let clean = redactor().redact_cut(&text, &[]).into_owned();
            let label = clean
                .strip_prefix(kept)
                .and_then(|rest| rest.strip_prefix("[redacted:"));
            let label = label.and_then(|rest| rest.strip_suffix(']'));
            assert!(label.is_some_and(|label| !label.contains(['[', ']'])), "{clean}");
        }
    }
}

proptest! {
    #[test]
    fn nothing_known_is_left_in_any_text_with_any_gaps(
        parts in prop::collection::vec(prop::sample::select((0..samples().len() * 2).collect::<Vec<_>>()), 1..6),
        noise in "[ -~\n]{0,20}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let samples = samples();
        let text: String = parts.iter().map(|at| samples.get(*at).map_or(noise.as_str(), |(text, _)| text)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        cuts.sort_unstable();
        let gaps: Vec<Range<usize>> = cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
        let redactor = redactor();
        let clean = redactor.redact_cut(&text, &gaps);
        // A secret that is redacted from the whole text must not show in a truncated one.
        for secret in [SECRET, "abcdefghij", "ghijklmnop", "ababab"] {
            prop_assert!(!clean.contains(secret), "{clean}");
        }
        prop_assert!(!["hunt", "abcd", "ghij"].iter().any(|part| clean.ends_with(part)), "{clean}");
    }

    #[test]
    fn any_text_stays_whole_where_nothing_is_secret(text in "[ -+a-z\n]{0,300}") {
        let redactor = Redactor::new([("NAME", "UNFINDABLE-VALUE")]);
        let gap = text.len() / 2..text.len() / 2;
        prop_assert_eq!(redactor.redact_cut(&text, &[gap]), text.as_str());
    }
}
