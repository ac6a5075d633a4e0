# Calls a tool of the client over the bridge, and prints its result as JSON. Calls of one program go one after the other.
exec {RINGFENCE_BRIDGE}<&3 3<&-

ringfence_call() {
    local name=$1 input=${2:-"{}"} lock id line
    # No line break is a part of JSON but between its parts.
    input=${input//$'\n'/ }
    if [[ ! $input =~ ^[[:space:]]*\{ ]]; then
        printf 'the input of the tool %s must be a JSON object, got: %s\n' "$name" "$input" >&2
        exit 1
    fi
    exec {lock}>/tmp/.calls
    flock "$lock"
    id=$BASHPID-$RANDOM$RANDOM
    printf '{"type":"call","id":"%s","data":{"path":%s,"kwargs":%s}}\n' "$id" "$name" "$input" >&"$RINGFENCE_BRIDGE"
    while IFS= read -r line <&"$RINGFENCE_BRIDGE"; do
        case $line in
        '{"type":"result","id":"'"$id"'","data":{"value":'*)
            exec {lock}>&-
            line=${line#*'"data":{"value":'}
            printf '%s\n' "${line%'}}'}"
            return 0
            ;;
        '{"type":"error","id":"'"$id"'",'* | '{"type":"error","id":"",'*)
            line=${line#*'"error":'}
            printf 'the tool %s failed: %s\n' "$name" "${line%'}}'}" >&2
            exit 1
            ;;
        esac
    done
    printf 'the bridge to the tools is closed\n' >&2
    exit 1
}

