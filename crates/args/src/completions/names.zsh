# Completes names, and files where both are taken.
(( $+functions[_ringfence_names] )) ||
_ringfence_names() {
    local tag=$1
    local -a names list
    list=(${=2})
    shift 2
    names=(${(f)"$(ringfence $list ls --quiet 2>/dev/null)"})
    _describe -t $tag $tag names "$@"
}
(( $+functions[_ringfence_sandboxes] )) ||
_ringfence_sandboxes() {
    _ringfence_names sandboxes sandbox "$@"
}
(( $+functions[_ringfence_snapshots] )) ||
_ringfence_snapshots() {
    _ringfence_names snapshots 'sandbox snapshot' "$@"
}
(( $+functions[_ringfence_sessions] )) ||
_ringfence_sessions() {
    _ringfence_names sessions session "$@"
}
(( $+functions[_ringfence_keys] )) ||
_ringfence_keys() {
    _ringfence_names keys keys "$@"
}
(( $+functions[_ringfence_sandboxes_or_files] )) ||
_ringfence_sandboxes_or_files() {
    _alternative 'sandboxes:sandbox:_ringfence_sandboxes -S ":"' 'files:file:_files'
}
