//! The output of a process, which a reader follows further after its connection was lost.

use serde_json::json;

use super::{Reply, Surface, world};

/// Returns the ids and the texts of an answer of events.
fn events(answer: &Reply) -> (Vec<u64>, String) {
    let after = |prefix: &'static str| {
        answer
            .body
            .lines()
            .filter_map(move |line| line.strip_prefix(prefix))
    };
    let ids = after("id: ").map(|id| id.parse().unwrap()).collect();
    let data = after("data: ").map(|data| serde_json::from_str(data).unwrap());
    let texts = data.filter_map(|data: serde_json::Value| Some(data["text"].as_str()?.to_owned()));
    (ids, texts.collect())
}

#[test]
fn a_reader_goes_on_behind_the_last_event_that_it_got() {
    let world = world();
    let user = Surface::socket(&world);
    let made = user.ask("POST /v1/sandboxes", &[], &json!({"name": "lab"}).to_string());
    assert_eq!(made.status, 200, "{made:?}");
    let process = json!({"command": "echo first; echo second"}).to_string();
    let started = user.ask("POST /v1/sandboxes/lab/processes", &[], &process).json();
    let output = format!("GET /v1/sandboxes/lab/processes/{}/output", started["pid"]);

    let (ids, text) = events(&user.ask(&output, &[], ""));
    assert_eq!((ids.last(), text.as_str()), (Some(&13), "first\nsecond\n"));
    assert_eq!(
        events(&user.ask(&output, &["Last-Event-ID: 6"], "")),
        (vec![13], "second\n".to_owned())
    );
    assert_eq!(
        events(&user.ask(&output, &["Last-Event-ID: 13"], "")),
        (vec![], String::new())
    );
    // What ends with its connection has nothing to be followed further.
    let whole = user.ask(
        "POST /v1/sandboxes/lab/exec",
        &["Accept: text/event-stream"],
        &process,
    );
    assert_eq!(events(&whole), (vec![], "first\nsecond\n".to_owned()));

    let refused = user.ask(&output, &["Last-Event-ID: second"], "");
    refused.refused(422, "invalid_arguments");
    assert!(refused.body.contains("`Last-Event-ID`"), "{refused:?}");
    world.close();
}
