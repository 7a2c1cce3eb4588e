#compdef forebay
# Completion of forebay for zsh: source <(forebay completion zsh), after compinit
_forebay() {
    local -a found
    found=("${(@f)$("${~words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    (( $#found )) || return 1
    compadd -S '' -- ${(M)found:#*[/=]}
    compadd -- ${found:#*[/=]}
}
if [[ ${funcstack[1]} == _forebay ]]; then
    _forebay "$@"
else
    compdef _forebay forebay
fi
