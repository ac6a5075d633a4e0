//! Invalid scores, and APIs without an answer: a person is asked, with the reason.

use serde_json::{Value, json};

use super::{IMPATIENT, asking, configured, was_asked};
use crate::host_exec::Asking;
use crate::providers::{FORMATS, Format, Provider, Reply};
use crate::tools::Tools;

const NO_INTEGER: &str = "it did not answer with one integer from 0 to 10";
const UNFINISHED: &str = "it did not finish its answer";
const REFUSED: &str = "it refused to answer";
const FORMAT: &str = "its server's answer is not in the format of the provider";

/// Asserts that such an API leads to a question with this reason.
#[track_caller]
fn no_score(format: Format, more: &str, reply: impl Fn(&str) -> Reply + Send + Sync + 'static, reason: &str) {
    let provider = Provider::new(reply);
    let tools = asking(&provider, format, &format!("{more}\n{IMPATIENT}"));
    let log = was_asked(&tools, "echo ran");
    assert_eq!(
        log,
        format!(
            "review (preValidation), risk at least 0; {}: no score, {reason}; risk 0, threshold 5; nobody answered",
            format.model()
        )
    );
}

fn body_leads_to(format: Format, body: Value, reason: &str) {
    no_score(format, "", move |_| Reply::body(&body), reason);
}

#[test]
fn only_a_bare_integer_counts() {
    for format in FORMATS {
        for text in [
            "",
            "low",
            "5/10",
            "3.0",
            " 5 because",
            "11",
            "-1",
            "1\n2",
            "**0**",
            "0.",
            "Risk: 0",
            "\u{200b}0",
        ] {
            body_leads_to(format, format.says(text), NO_INTEGER);
        }
    }
    // Surrounding whitespace is ignored.
    let provider = Provider::saying(Format::Anthropic, " \n4\n");
    let tools = asking(&provider, Format::Anthropic, "");
    assert_eq!(tools.ask("host_exec", json!({"command": "echo ran"})), "ran\n");
}

#[test]
fn only_a_finished_answer_counts() {
    for (format, reason, words) in [
        (Format::Anthropic, "max_tokens", UNFINISHED),
        (Format::Anthropic, "stop_sequence", UNFINISHED),
        (Format::Anthropic, "tool_use", UNFINISHED),
        (Format::Anthropic, "pause_turn", UNFINISHED),
        (Format::Anthropic, "refusal", REFUSED),
        (Format::OpenAi, "length", UNFINISHED),
        (Format::OpenAi, "tool_calls", UNFINISHED),
        (Format::OpenAi, "error", UNFINISHED),
        (Format::OpenAi, "content_filter", REFUSED),
    ] {
        body_leads_to(format, format.ended("0", reason), words);
    }
}

#[test]
fn only_one_text_counts() {
    let anthropic = |content: Value| {
        let mut body = Format::Anthropic.says("");
        body["content"] = content;
        body
    };
    let zero = json!({"type": "text", "text": "0"});
    for (content, reason) in [
        (json!([]), NO_INTEGER),
        (json!([zero, zero]), NO_INTEGER),
        (
            json!([{"type": "thinking", "thinking": "hm", "signature": "s"}, zero]),
            NO_INTEGER,
        ),
        (
            json!([zero, {"type": "tool_use", "id": "t", "name": "run", "input": {}}]),
            NO_INTEGER,
        ),
        (json!([{"type": "image", "source": {}}]), NO_INTEGER),
        (json!("0"), FORMAT),
        (json!(null), FORMAT),
    ] {
        body_leads_to(Format::Anthropic, anthropic(content), reason);
    }
    let openai = |message: Value| json!({"choices": [{"finish_reason": "stop", "message": message}]});
    let call = json!([{"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}]);
    for (message, reason) in [
        (json!({"content": null}), NO_INTEGER),
        (json!({"content": 0}), NO_INTEGER),
        (
            json!({"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "0"}]}),
            NO_INTEGER,
        ),
        (json!({"content": "0", "refusal": "no"}), REFUSED),
        (json!({"content": "0", "tool_calls": call}), NO_INTEGER),
        (
            json!({"content": "0", "function_call": {"name": "run"}}),
            NO_INTEGER,
        ),
    ] {
        body_leads_to(Format::OpenAi, openai(message), reason);
    }
    let mut two = Format::OpenAi.says("0");
    two["choices"] = json!([two["choices"][0], two["choices"][0]]);
    body_leads_to(Format::OpenAi, two, NO_INTEGER);
    body_leads_to(Format::OpenAi, json!({"choices": []}), UNFINISHED);
    body_leads_to(Format::OpenAi, json!([]), UNFINISHED);
    body_leads_to(Format::OpenAi, json!({"error": {"message": "oh"}}), UNFINISHED);
}

#[test]
fn a_server_that_refuses_or_fails_gives_no_score() {
    for format in FORMATS {
        for status in [400, 401, 403, 404, 429, 500, 503, 529] {
            let zero = format.says("0").to_string();
            let head = format!("{status} Oh\r\nContent-Type: application/json\r\nRetry-After: 0");
            no_score(
                format,
                "",
                move |_| Reply::with(&head, &zero),
                &format!("its server answered with status {status}"),
            );
        }
    }
}

#[test]
fn a_redirect_is_not_followed() {
    for format in FORMATS {
        let elsewhere = Provider::saying(format, "0");
        for status in [301, 302, 303, 307, 308] {
            let location = format!(
                "{status} Moved\r\nLocation: http://127.0.0.1:{}/v1/messages",
                elsewhere.port
            );
            no_score(
                format,
                "",
                move |_| Reply::with(&location, ""),
                &format!("its server answered with status {status}"),
            );
        }
        assert_eq!(elsewhere.requests(), [""; 0]);
    }
}

#[test]
fn a_server_that_does_not_come_to_an_end_is_left() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    let late = "it did not answer within 300ms";
    for format in FORMATS {
        no_score(format, "timeoutMs = 300", |_| Reply::Silence, late);
        let slow = move |_: &str| Reply::Trickle(format!("{HEAD}{}", format.says("0")));
        no_score(format, "timeoutMs = 300", slow, late);
        no_score(
            format,
            "",
            |_| Reply::Endless(HEAD.to_owned(), "                "),
            "its server sent a longer answer than 256 KiB",
        );
        no_score(
            format,
            "",
            |_| Reply::Endless("HTTP/1.1 500 Oh\r\n\r\n".to_owned(), "sorry "),
            "its server sent a longer answer than 256 KiB",
        );
    }
}

#[test]
fn what_is_no_answer_of_a_provider_gives_no_score() {
    for format in FORMATS {
        let text = "200 OK\r\nContent-Type: text/plain";
        no_score(format, "", move |_| Reply::with(text, "0"), FORMAT);
        let json = "200 OK\r\nContent-Type: application/json";
        no_score(format, "", move |_| Reply::with(json, "{"), FORMAT);
        let deep = "[".repeat(100_000);
        no_score(format, "", move |_| Reply::with(json, &deep), FORMAT);
        no_score(
            format,
            "",
            |_| Reply::Whole("no http\r\n\r\n".to_owned()),
            "the connection was lost",
        );
    }
}

#[test]
fn a_server_that_is_not_there_gives_no_score_and_the_person_learns_it() {
    // A port that was just free.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let base = format!("http://127.0.0.1:{port}");
    let tools = Tools::new(&configured(Format::OpenAi, &base, "apiKeyEnv = ''"));
    let asking = Asking::of(&tools, "echo ran");
    assert_eq!(
        asking.question()["reasons"][0],
        format!("the model openai/small gave no score: 127.0.0.1 cannot be reached at port {port}")
    );
    asking.answer("approve");
    assert_eq!(asking.end(), json!("ran\n"));
}

#[test]
fn nothing_that_a_model_says_reaches_the_person() {
    let provider = Provider::saying(Format::Anthropic, "This is safe, press approve");
    let tools = asking(&provider, Format::Anthropic, "");
    let asking = Asking::of(&tools, "echo ran");
    let question = asking.question().to_string();
    assert!(
        question.contains(NO_INTEGER) && !question.contains("press"),
        "{question}"
    );
    asking.answer("deny");
    asking.end();
}
