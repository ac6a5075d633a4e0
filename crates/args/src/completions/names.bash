# Completes names: in the first argument of commands, in each of `rm` and `cp` of sandboxes, and as the value of `--snapshot`.
# Behind another option that may take a value clap's words stand. Files are left to bash, which quotes their names: a program
# in a sandbox can have named them. Names have no sign of the shell in them.
_ringfence_names() {
    local word index=3 subcommand="${COMP_WORDS[2]-}" list=(sandbox) name suffix="" names=()
    _ringfence "$@"
    [[ "$2" != -* ]] || return 0
    case "${COMP_WORDS[1]-} $subcommand" in
        "keys revoke" | "keys rm") list=(keys) ;;
        "session rm" | "session fork") list=(session) ;;
        "sandbox snapshot")
            index=4
            case "${COMP_WORDS[3]-}" in
                create) ;;
                rm) list=(sandbox snapshot) ;;
                *) return 0 ;;
            esac
            ;;
        "sandbox create")
            [[ "$3" == --snapshot ]] || return 0
            index=$COMP_CWORD
            list=(sandbox snapshot)
            ;;
        "sandbox cp") suffix=":" ;;
        {SUBCOMMANDS}) ;;
        *) return 0 ;;
    esac
    for word in "${COMP_WORDS[@]:index:COMP_CWORD-index}"; do
        case "$word" in
            -i | -t | -it | -ti | --interactive | --tty | --json) ;;
            -*) return 0 ;;
            *) [[ "${list[*]} $subcommand" == "sandbox rm" || "$subcommand" == cp ]] || return 0 ;;
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
    done < <("$1" "${list[@]}" ls --quiet 2>/dev/null)
    if [[ ${#names[@]} -gt 0 ]]; then
        COMPREPLY=("${names[@]}")
        [[ -n "$suffix" ]] && compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _ringfence_names -o bashdefault -o default ringfence
