//! The manual page and the reference page of the command line.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::Cli;

/// Columns of the pages: they do not depend on a terminal.
const WIDTH: usize = 100;

/// Returns the manual page in roff, with a section for each command.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn manual_page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let top = Man::new(command.clone());
    // Without its list of subcommands, which names a page for each: there is this one.
    top.render_title(&mut page)?;
    top.render_name_section(&mut page)?;
    top.render_synopsis_section(&mut page)?;
    top.render_description_section(&mut page)?;
    top.render_options_section(&mut page)?;
    top.render_extra_section(&mut page)?;
    for (_, command) in leaves(&command) {
        let man = Man::new(command);
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_options_section(&mut page)?;
        man.render_extra_section(&mut page)?;
    }
    Ok(page)
}

/// Returns the reference page in Markdown: the help of every command.
pub fn reference_page() -> String {
    let mut page =
        "# Command line\n\n<!-- Written by `ringfence help-markdown`; do not edit. -->\n".to_owned();
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let top = std::iter::once(("ringfence".to_owned(), command.clone()));
    for (name, mut command) in top.chain(leaves(&command)) {
        let help = command.render_long_help().to_string();
        let help: String = help
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        page.push_str(&format!("\n## `{name}`\n\n```text\n{help}```\n"));
    }
    page
}

/// Returns every visible command without visible subcommands, with its full name.
fn leaves(command: &Command) -> Vec<(String, Command)> {
    let visible = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let mut out = Vec::new();
    for child in visible {
        let below = leaves(child);
        let name = child
            .get_bin_name()
            .unwrap_or_else(|| child.get_name())
            .to_owned();
        if below.is_empty() {
            out.push((name, child.clone().term_width(WIDTH)))
        } else {
            out.extend(below)
        }
    }
    out
}
