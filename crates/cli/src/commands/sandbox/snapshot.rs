//! Copies of sandboxes: `ringfence sandbox fork` and `snapshot`.

use std::process::ExitCode;

use serde_json::Value;

use super::{client, failure, print_json, print_names, sandbox_only, text};
use crate::context::Context;
use crate::ui::table;
use ringfence_args::{
    SandboxForkArgs, ScopedListArgs, ScopedOptions, SnapshotCommand, SnapshotCreateArgs, SnapshotNameArgs,
};
use ringfence_client::Snapshots;

pub(super) async fn fork(args: &SandboxForkArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.name, "`fork`", &args.options, context).await?;
    let forked = sandbox
        .fork(args.count, args.new_name.as_deref())
        .await
        .map_err(failure)?;
    if args.options.json {
        return print_json(&forked, context);
    }
    print_names(forked["sandboxes"].as_array().into_iter().flatten(), context)
}

pub(super) async fn run(command: &SnapshotCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        SnapshotCommand::Create(args) => create(args, context).await,
        SnapshotCommand::Ls(args) => list(args, context).await,
        SnapshotCommand::Rm(args) => remove(args, context).await,
    }
}

async fn create(args: &SnapshotCreateArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let sandbox = sandbox_only(&args.sandbox, "`snapshot`", &args.options, context).await?;
    let made = sandbox.snapshot(args.name.as_deref()).await.map_err(failure)?;
    if args.options.json {
        return print_json(&made, context);
    }
    print_names([&made].into_iter(), context)?;
    match made["skipped"].as_u64() {
        None | Some(0) => {}
        Some(count) => context
            .ui
            .warn(&format!("{count} files were left out, such as sockets and FIFOs")),
    }
    let missing = made["not_copied"].as_array().into_iter().flatten();
    let missing: Vec<&str> = missing.filter_map(Value::as_str).collect();
    if !missing.is_empty() {
        let missing = missing.join("`, `");
        context.ui.note(&format!(
            "the snapshot has the sandbox's files, without its `{missing}`: give them to `create` again"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn snapshots(options: &ScopedOptions, context: &Context) -> anyhow::Result<Snapshots> {
    let user = options.user().map(|user| user.as_str().to_owned());
    Ok(Snapshots::new(client(context)?, user))
}

async fn list(args: &ScopedListArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let all = snapshots(&args.options, context)?.list().await.map_err(failure)?;
    match all.is_empty() {
        _ if args.options.json => return print_json(&Value::Array(all), context),
        _ if args.quiet => return print_names(all.iter(), context),
        true => context.ui.note("there are no snapshots"),
        false => {}
    }
    let rows = all.iter().map(|known| {
        let field = |name| text(known, name).to_owned();
        let size = format!("{} bytes", known["size"]);
        [
            field("id"),
            field("name"),
            size,
            field("sandbox"),
            field("created_at"),
        ]
    });
    let header = ["ID", "NAME", "SIZE", "OF SANDBOX", "CREATED"];
    context.ui.out(table(header, rows))?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: &SnapshotNameArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let all = snapshots(&args.options, context)?;
    all.remove(&args.snapshot).await.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}
