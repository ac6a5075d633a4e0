//! `/v1/sandboxes`: sandboxes that live.

mod attach;
mod contexts;
mod copies;
mod entries;
mod files;
mod life;
mod ports;
mod processes;

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let groups = [
        life::routes(),
        processes::routes(),
        attach::routes(),
        contexts::routes(),
        files::routes(),
        copies::routes(),
        ports::routes(),
    ];
    groups.into_iter().flatten().collect()
}
