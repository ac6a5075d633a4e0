//! Serves the page's static files, which contain no data.

use axum::Router;
use axum::http::header;
use axum::routing::get;

/// Paths that need no credentials.
pub(super) const PATHS: &[&str] = &["/", "/console.css", "/console.mjs", "/icon.svg"];

const HTML: &str = include_str!("page/console.html");
const STYLE: &str = include_str!("page/console.css");
const SCRIPT: &str = include_str!("page/console.mjs");
const ICON: &str = include_str!("page/icon.svg");

pub(super) fn routes() -> Router {
    Router::new()
        .route("/", file("text/html; charset=utf-8", HTML))
        .route("/console.css", file("text/css; charset=utf-8", STYLE))
        .route("/console.mjs", file("text/javascript; charset=utf-8", SCRIPT))
        .route("/icon.svg", file("image/svg+xml", ICON))
}

fn file(kind: &'static str, text: &'static str) -> axum::routing::MethodRouter {
    get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
}
