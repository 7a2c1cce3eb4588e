# Completion of forebay for bash: source <(forebay completion bash)
_forebay() {
    local line=${COMP_LINE:0:COMP_POINT} words current broken
    # bash breaks words at : and =, which URIs and options contain; the line has them whole.
    read -r -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    mapfile -t COMPREPLY < <("${1/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
    # bash puts the completion in place of what follows the last break.
    broken=${current%"${current##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$broken"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _forebay forebay
