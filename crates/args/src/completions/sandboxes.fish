# Completes the names of sandboxes. What follows `--` is a program's.
set -l names '(ringfence sandbox ls --quiet 2>/dev/null)'
set -l seen __fish_seen_subcommand_from
set -l before '__fish_ringfence_using_subcommand sandbox; and not contains -- -- (commandline -opc)'
complete -c ringfence -n "$before; and $seen {SUBCOMMANDS}; and not $seen create" -a $names
complete -c ringfence -n "$before; and $seen cp; and not $seen create" -a "$names:"
complete -c ringfence -n "$before; and $seen snapshot; and $seen create" -a $names
