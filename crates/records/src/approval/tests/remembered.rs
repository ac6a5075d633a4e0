//! Remembered answers: scope, number of uses, lifetime.

use super::*;
use crate::approval::grants::uptime;

#[tokio::test]
async fn an_answer_for_the_session_holds_there_and_nowhere_else() {
    let pair = Pair::new();
    pair.granted(command("x"), Remember::Session).await;
    for _ in 0..3 {
        let again = pair.asks.ask(command("x")).await.unwrap();
        assert_eq!(again, approved("an approval for the session"));
    }
    let other_text = command("x ");
    let other_session = Question {
        session: Some("other".parse().unwrap()),
        ..command("x")
    };
    let no_session = Question {
        session: None,
        ..command("x")
    };
    let other_scope = Question {
        scope: "bob".parse().unwrap(),
        ..command("x")
    };
    for question in [other_text, other_session, no_session, other_scope] {
        assert_eq!(pair.answered(question, no).await, rejected());
    }
}

#[tokio::test]
async fn a_scope_is_forgotten_with_its_answers_and_ended_questions() {
    let pair = Pair::new();
    let bobs = || Question {
        scope: "bob".parse().unwrap(),
        ..command("x")
    };
    pair.granted(command("x"), Remember::Session).await;
    pair.granted(bobs(), Remember::Session).await;
    pair.asks.forget(&command("x").scope).unwrap();
    let left = pair.asks.history().await.unwrap();
    assert!(left.iter().all(|request| request.scope == "bob") && !left.is_empty());
    assert_eq!(pair.answered(command("x"), no).await, rejected());
    let again = pair.asks.ask(bobs()).await.unwrap();
    assert_eq!(again, approved("an approval for the session"));
}

#[tokio::test]
async fn so_many_uses_are_so_many() {
    let pair = Pair::new();
    pair.granted(command("x"), Remember::Uses(3)).await;
    let question = command("x");
    let mut spent = 0;
    while pair.store().spend(&question, uptime()).unwrap() {
        spent += 1;
    }
    assert_eq!(spent, 3);
}

#[tokio::test]
async fn what_holds_for_a_session_ends_with_its_time_counted_or_not() {
    const HOUR: u64 = 60 * 60 * 1000;
    for remember in [Remember::Session, Remember::Uses(100)] {
        let pair = Pair::new();
        let before = uptime();
        pair.granted(command("x"), remember).await;
        let mut store = pair.store();
        let mut holds = |at| store.spend(&command("x"), at).unwrap();
        assert!(holds(uptime()) && holds(before + 12 * HOUR - 1), "{remember:?}");
        assert!(!holds(uptime() + 12 * HOUR), "{remember:?}");
        // The person is then asked again.
        let over = "UPDATE grants SET expires = ?";
        assert_eq!(store.connection.execute(over, [uptime()]).unwrap(), 1);
        assert_eq!(pair.answered(command("x"), no).await, rejected());
    }
}

/// The wall clock can be set back.
#[tokio::test]
async fn what_holds_for_a_session_is_counted_from_the_machines_start() {
    let pair = Pair::new();
    pair.granted(command("x"), Remember::Session).await;
    let mut store = pair.store();
    let read = "SELECT expires FROM grants";
    let expires: u64 = store.connection.query_row(read, [], |row| row.get(0)).unwrap();
    assert!(expires <= uptime() + 12 * 60 * 60 * 1000, "{expires}");
    // As an older server wrote it.
    let since_1970 = "UPDATE grants SET expires = unixepoch() * 1000";
    assert_eq!(store.connection.execute(since_1970, []).unwrap(), 1);
    assert!(!store.spend(&command("x"), uptime()).unwrap());
}

#[tokio::test]
async fn uses_are_neither_spent_twice_nor_by_a_namesake_nor_after_the_machine_has_started_anew() {
    let pair = Pair::new();
    pair.granted(command("x"), Remember::Uses(100)).await;
    let path = pair.dir.path().join("approvals.db");
    let spent: usize = std::thread::scope(|scope| {
        let spenders: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = Store::open(&path).unwrap();
                    (0..20)
                        .filter(|_| store.spend(&command("x"), uptime()).unwrap())
                        .count()
                })
            })
            .collect();
        spenders.into_iter().map(|spender| spender.join().unwrap()).sum()
    });
    assert_eq!(spent, 100);

    // A session named like a process does not get the answers of that process.
    let namesake = Question {
        session: Some(ringfence_exec::owner::owner_name().parse().unwrap()),
        ..command("y")
    };
    let process = Question {
        session: None,
        ..command("y")
    };
    pair.granted(process.clone(), Remember::Session).await;
    let mut store = pair.store();
    assert!(store.spend(&process, uptime()).unwrap() && !store.spend(&namesake, uptime()).unwrap());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let set = "UPDATE grants SET session = replace(session, ?, 'before')";
    assert_eq!(store.connection.execute(set, [boot.trim()]).unwrap(), 1);
    assert!(!store.spend(&process, uptime()).unwrap());
}

#[tokio::test]
async fn a_lasting_approval_is_a_line_that_a_person_can_revoke() {
    let pair = Pair::new();
    pair.granted(command("echo \"a\"\nb"), Remember::Always).await;
    let again = pair
        .asks
        .ask(Question {
            session: None,
            ..command("echo \"a\"\nb")
        })
        .await
        .unwrap();
    assert_eq!(again, approved("a lasting approval"));
    let file = pair.answers.approved();
    let plain = command("x").kind;
    let holds = |scope, text| file.holds(scope, text, &plain).unwrap();
    assert!(
        holds("local", "echo \"a\"\nb") && !holds("bob", "echo \"a\"\nb") && !holds("local", "echo \"a\"")
    );
    // The person's edits are preserved: added lines stay, removed entries are gone.
    let text = std::fs::read_to_string(file.path()).unwrap();
    std::fs::write(file.path(), format!("# mine\n{text}")).unwrap();
    file.add("local", "ls", &plain, "ann").unwrap();
    file.add("local", "ls", &plain, "ann").unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        text.starts_with("# mine\n") && file.entries().unwrap().len() == 2,
        "{text}"
    );
    std::fs::write(file.path(), "# mine\n").unwrap();
    assert!(!holds("local", "ls"));
}

#[tokio::test]
async fn a_file_that_others_may_write_to_or_that_makes_no_sense_allows_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let pair = Pair::new();
    let file = pair.asks.approved();
    let plain = command("x").kind;
    file.add("local", "x", &plain, "ann").unwrap();
    assert!(file.holds("local", "x", &plain).unwrap());
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(
        file.holds("local", "x", &plain),
        Err(Error::Approved { .. })
    ));
    assert_eq!(pair.answered(command("x"), no).await, rejected());
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let good = std::fs::read_to_string(file.path()).unwrap();
    for bad in [
        "[[command]]\ntext = ''\nscope = 'local'\n",
        "[[command]]\ntext = 'y'\n",
        "x",
        "[[other]]\n",
    ] {
        std::fs::write(file.path(), format!("{good}\n{bad}")).unwrap();
        assert!(
            matches!(file.holds("local", "x", &plain), Err(Error::Approved { .. })),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_remembered_answer_holds_in_its_directory_and_for_its_files_alone() {
    let pair = Pair::new();
    let at = |directory: &str, files: &str| {
        let mut question = command("./job");
        if let Kind::Command { place, .. } = &mut question.kind {
            place.directory = directory.to_owned();
            place.files = Some(Digest::of(files.as_bytes()));
            place.contents = place.files;
        }
        question
    };
    for remember in [Remember::Session, Remember::Always] {
        pair.granted(at("/a", "1"), remember).await;
        // The same question is not asked again.
        decided(pair.ask(at("/a", "1"))).await;
        for other in [at("/b", "1"), at("/a/", "1"), at("", "1"), at("/a", "2")] {
            pair.answered(other, yes).await;
        }
        let forgotten = pair.store();
        forgotten.connection.execute("DELETE FROM grants", []).unwrap();
    }
}

#[tokio::test]
async fn a_yes_to_a_call_holds_for_its_arguments_and_a_budget_for_any() {
    let call = |path: &str, arguments: &str| Question {
        kind: Kind::Skill {
            path: path.to_owned(),
            definition: None,
            changed: false,
        },
        ..command(&format!("{path} {arguments}"))
    };
    let pair = Pair::new();
    let mut store = pair.store();
    let mut holds = |path, arguments| store.spend(&call(path, arguments), uptime()).unwrap();
    pair.granted(call("Notes.drop", "{1}"), Remember::Once).await;
    assert!(!holds("Notes.drop", "{1}"));
    pair.granted(call("Notes.drop", "{1}"), Remember::Session).await;
    assert!(holds("Notes.drop", "{1}") && holds("Notes.drop", "{1}"));
    assert!(!holds("Notes.drop", "{2}") && !holds("Notes.add", "{1}"));
    pair.granted(call("Notes.drop", "{2}"), Remember::Uses(2)).await;
    // An approval of exactly this call spends nothing of the budget.
    assert!(holds("Notes.drop", "{1}") && holds("Notes.drop", "{3}"));
    assert!(!holds("Notes.add", "{3}"));
    assert!(holds("Notes.drop", "{4}") && !holds("Notes.drop", "{5}"));
    assert!(holds("Notes.drop", "{1}"));
}

#[tokio::test]
async fn a_yes_to_a_call_holds_for_one_definition_of_its_function() {
    let call = |definition: &str| Question {
        kind: Kind::Skill {
            path: "Notes.drop".to_owned(),
            definition: Some(Digest::of(definition.as_bytes())),
            changed: false,
        },
        ..command("Notes.drop {1}")
    };
    let pair = Pair::new();
    let mut store = pair.store();
    for remember in [Remember::Session, Remember::Uses(2)] {
        pair.granted(call("old"), remember).await;
        let mut holds = |definition| store.spend(&call(definition), uptime()).unwrap();
        assert!(holds("old") && !holds("new"), "{remember:?}");
        store.connection.execute("DELETE FROM grants", []).unwrap();
    }
    // The request is marked as changed until the new definition is approved.
    let changed = |request: &Request| matches!(request.kind, Kind::Skill { changed: true, .. });
    for (verdict, expected) in [
        (Verdict::Reject, true),
        (Verdict::Approve, true),
        (Verdict::Approve, false),
    ] {
        let asking = pair.ask(call("new"));
        let request = pair.only().await;
        assert_eq!(changed(&request), expected, "{request:?}");
        assert_eq!(
            request.kind.reasons().len(),
            1 + usize::from(expected),
            "{request:?}"
        );
        let answer = Answer {
            verdict,
            ..yes(&request)
        };
        pair.answers.answer(answer).await.unwrap();
        decided(asking).await;
    }
}

#[tokio::test]
async fn what_may_not_be_remembered_is_not_taken_at_all() {
    let pair = Pair::new();
    let kind = Kind::Command {
        reasons: Vec::new(),
        risk: None,
        lasting: Lasting::Never,
        place: CommandContext::default(),
    };
    let asking = pair.ask(Question {
        kind,
        ..command("bash -c x")
    });
    let request = pair.only().await;
    let always = Answer {
        remember: Remember::Always,
        ..yes(&request)
    };
    assert_eq!(
        refused(pair.answers.answer(always).await),
        Unanswerable::NotRemembered
    );
    assert!(pair.answers.approved().entries().unwrap().is_empty());
    pair.answers.answer(yes(&request)).await.unwrap();
    decided(asking).await;
}

#[tokio::test]
async fn a_no_for_the_session_is_not_asked_about_again() {
    let pair = Pair::new();
    let refused = |request: &Request| Answer {
        remember: Remember::Session,
        ..no(request)
    };
    assert_eq!(pair.answered(command("x"), refused).await, rejected());
    let by = "a denial for the session".to_owned();
    let again = pair.asks.ask(command("x")).await.unwrap();
    assert_eq!(again, Decision::Rejected { by: by.clone() });
    // Whatever its files contain by then, and whatever was approved before.
    let mut changed = command("x");
    if let Kind::Command { place, .. } = &mut changed.kind {
        place.files = Some(Digest::of(b"2"));
    }
    assert_eq!(pair.asks.ask(changed).await.unwrap(), Decision::Rejected { by });
    // In another session, and after a denial for this request only, the person is asked.
    let other = Question {
        session: Some("other".parse().unwrap()),
        ..command("x")
    };
    assert_eq!(pair.answered(other, yes).await, approved("ann"));
    assert_eq!(pair.answered(command("y"), no).await, rejected());
    assert_eq!(pair.answered(command("y"), yes).await, approved("ann"));
}
