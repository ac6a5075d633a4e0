//! `ringfence image`: the images of the local fence.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use ringfence::Failure;
use ringfence::images::{failure, network, store};
use ringfence_args::{ImageCommand, ImageImportArgs, ImagePullArgs};
use ringfence_images::{ImageInfo, Import, Progress, Pulled, Removal, Selector, Store, import, pull};

use crate::context::Context;
use crate::ui::table;
use ringfence_gateway_protocol::interrupted;

/// Timeout of removing the files that a cancelled pull has unpacked. The next command removes the rest.
const CLEANUP: Duration = Duration::from_secs(5);

pub(crate) fn run(command: &ImageCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = store(context)?;
    match command {
        ImageCommand::Pull(args) => pulled(args, &store, context)?,
        ImageCommand::Import(args) => imported(args, &store, context)?,
        ImageCommand::Ls { json } => {
            // A list is no reason to fail where nothing can be removed.
            let _ = store.collect();
            let images = store.list().map_err(|error| failure(&error))?;
            match json {
                true => context.ui.json(&images)?,
                false if images.is_empty() => context.ui.note("there are no images"),
                false => {
                    let rows = images.iter().flat_map(rows);
                    context.ui.out(table(["DIGEST", "SIZE", "NAME"], rows))?;
                }
            }
        }
        ImageCommand::Rm { images } => {
            for selector in images {
                removed(selector, &store, context)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn pulled(args: &ImagePullArgs, store: &Store, context: &Context) -> anyhow::Result<()> {
    let network = network(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_shown = io::stderr().is_terminal();
    let ui = context.ui;
    let mut last = None;
    let mut progress = |progress: Progress| {
        let percent = progress.received.saturating_mul(100) / progress.size.max(1);
        if is_shown && last.replace((progress.layer, percent)) != Some((progress.layer, percent)) {
            let (layer, layers) = (progress.layer, progress.layers);
            // A closed standard error leaves nobody to show it to.
            let _ = ui.err(format!("\r\x1b[Klayer {layer} of {layers}: {percent} %"));
        }
    };
    let interruptible = async {
        tokio::select! {
            pulled = pull(store, &args.reference, &network, &mut progress) => Some(pulled),
            () = interrupted() => None,
        }
    };
    let outcome = runtime.block_on(interruptible);
    // A layer that is being unpacked is removed.
    runtime.shutdown_timeout(CLEANUP);
    if is_shown {
        let _ = ui.err("\r\x1b[K");
    }
    let pulled = outcome
        .ok_or_else(|| Failure::refused("the pull was cancelled", "nothing was kept; pull it again"))?;
    let Pulled { digest, .. } = pulled.map_err(|error| failure(&error))?;
    context.ui.out(format!("{}  {digest}\n", args.reference))?;
    note_left_out(store, &Selector::Digest(digest), context)
}

fn imported(args: &ImageImportArgs, store: &Store, context: &Context) -> anyhow::Result<()> {
    let imported = import(store, &args.file, args.name.as_ref()).map_err(|error| failure(&error))?;
    for Import { references, digest } in imported {
        for reference in references {
            context.ui.out(format!("{reference}  {digest}\n"))?;
        }
        note_left_out(store, &Selector::Digest(digest), context)?;
    }
    Ok(())
}

/// Notes the entries of an image that were not unpacked.
fn note_left_out(store: &Store, selector: &Selector, context: &Context) -> anyhow::Result<()> {
    let images = store.list().map_err(|error| failure(&error))?;
    let is_it = |image: &&ImageInfo| Selector::Digest(image.digest) == *selector;
    let Some(image) = images.iter().find(is_it) else {
        return Ok(());
    };
    let left_out = image.content.left_out();
    if !left_out.is_empty() {
        context.ui.note(&format!("left out: {}", left_out.join(", ")));
    }
    let user = image.process.user.as_str();
    if !matches!(user, "" | "0" | "root") {
        context.ui.note(&format!(
            "the image asks for the user `{user}`; runs on it have one user, who can read all files"
        ));
    }
    Ok(())
}

fn removed(selector: &Selector, store: &Store, context: &Context) -> anyhow::Result<()> {
    match store.remove(selector).map_err(|error| failure(&error))? {
        Removal::Removed => {}
        Removal::StillNamed => context
            .ui
            .note("the image has other references, and stays under them"),
        Removal::InUse => context.ui.note(
            "a run or sandbox uses the image; its files go with the first `ringfence image` command after it",
        ),
    }
    Ok(())
}

/// Returns the cells of an image in a list, a row for each reference.
fn rows(image: &ImageInfo) -> Vec<[String; 3]> {
    let digest: String = image.digest.to_string().chars().take(19).collect();
    let row = |name: String| [digest.clone(), size(image.content.bytes), name];
    match image.references.is_empty() {
        true => vec![row("(removed, but in use)".to_owned())],
        false => image
            .references
            .iter()
            .map(|name| row(name.to_string()))
            .collect(),
    }
}

/// Renders a size in decimal units, as Docker's list does.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}
