# Completes the names of sandboxes, and files where both are taken.
(( $+functions[_ringfence_sandboxes] )) ||
_ringfence_sandboxes() {
    local -a names
    names=(${(f)"$(ringfence sandbox ls --quiet 2>/dev/null)"})
    _describe -t sandboxes 'sandbox' names "$@"
}
(( $+functions[_ringfence_sandboxes_or_files] )) ||
_ringfence_sandboxes_or_files() {
    _alternative 'sandboxes:sandbox:_ringfence_sandboxes -S ":"' 'files:file:_files'
}
