# Completes names. What follows `--` is a program's.
set -l names '(ringfence sandbox ls --quiet 2>/dev/null)'
set -l snapshots '(ringfence sandbox snapshot ls --quiet 2>/dev/null)'
set -l seen __fish_seen_subcommand_from
set -l before '__fish_ringfence_using_subcommand sandbox; and not contains -- -- (commandline -opc)'
complete -c ringfence -n "$before; and $seen {SUBCOMMANDS}; and not $seen create snapshot" -a $names
complete -c ringfence -n "$before; and $seen cp; and not $seen create" -a "$names:"
complete -c ringfence -n "$before; and $seen snapshot; and $seen create" -a $names
complete -c ringfence -n "$before; and $seen snapshot; and $seen rm" -a $snapshots
complete -c ringfence -n "$before; and $seen create; and not $seen snapshot" -l snapshot -x -a $snapshots
complete -c ringfence -n "__fish_ringfence_using_subcommand session; and $seen rm fork" -a '(ringfence session ls --quiet 2>/dev/null)'
complete -c ringfence -n "__fish_ringfence_using_subcommand keys; and $seen revoke rm" -a '(ringfence keys ls --quiet 2>/dev/null)'
