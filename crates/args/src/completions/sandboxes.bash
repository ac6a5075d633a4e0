# Completes the names of sandboxes: in the first argument of commands, and in each of `rm` and `cp`. Behind an option that may
# take a value clap's words stand. Files are left to bash, which quotes their names: a program in a sandbox can have named
# them. The names of sandboxes have no sign of the shell in them.
_ringfence_sandboxes() {
    local word index=3 subcommand="${COMP_WORDS[2]-}" name suffix="" names=()
    _ringfence "$@"
    [[ "${COMP_WORDS[1]-}" == sandbox && "$2" != -* ]] || return 0
    case "$subcommand" in
        snapshot)
            [[ "${COMP_WORDS[3]-}" == create ]] || return 0
            index=4
            ;;
        cp) suffix=":" ;;
        {SUBCOMMANDS}) ;;
        *) return 0 ;;
    esac
    for word in "${COMP_WORDS[@]:index:COMP_CWORD-index}"; do
        case "$word" in
            -i | -t | -it | -ti | --interactive | --tty | --json) ;;
            -*) return 0 ;;
            *) [[ "$subcommand" == rm || "$subcommand" == cp ]] || return 0 ;;
        esac
    done
    if [[ "$subcommand" == cp ]]; then
        COMPREPLY=()
        # A path of a sandbox, behind the colon, which is a word of its own.
        if [[ "$2" == : || "$3" == : ]]; then
            compopt +o default +o bashdefault 2>/dev/null
            return 0
        fi
    fi
    while IFS= read -r name; do
        [[ "$name" == "$2"* ]] && names+=("$name$suffix")
    done < <("$1" sandbox ls --quiet 2>/dev/null)
    if [[ ${#names[@]} -gt 0 ]]; then
        COMPREPLY=("${names[@]}")
        [[ -n "$suffix" ]] && compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _ringfence_sandboxes -o bashdefault -o default ringfence
