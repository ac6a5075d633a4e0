//! `/docs`: a page without scripts, which needs no key.

use super::{Surface, world};

#[test]
fn the_page_is_whole_without_a_network_and_runs_nothing() {
    let world = world();
    for surface in [Surface::loopback(&world), Surface::socket(&world)] {
        let page = surface.ask("GET /docs", &[], "");
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.head.contains("content-type: text/html"), "{page:?}");
        let policy = page
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-security-policy: "));
        let policy = policy.unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let document = surface.ask("GET /openapi.json", &[], "").json();
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.body.contains(&format!(" {path}</code></h3>")), "{path}");
        }
        assert!(!page.body.contains("<script"));
        let style = surface.ask("GET /docs/style.css", &[], "");
        assert!(style.head.contains("content-type: text/css"), "{style:?}");
    }
    world.close();
}
