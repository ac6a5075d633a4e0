//! `/v1/sandboxes`: sandboxes that live.

mod attach;
mod contexts;
mod copies;
mod entries;
mod files;
mod life;
mod life_events;
mod ports;
mod processes;

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let groups = [
        life::routes(),
        life_events::routes(),
        processes::routes(),
        attach::routes(),
        contexts::routes(),
        files::routes(),
        copies::routes(),
        ports::routes(),
    ];
    groups.into_iter().flatten().collect()
}
