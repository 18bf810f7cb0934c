package render

import (
	"cmp"
	"strings"
)

// Tokens are replaced in string fields by the values of a namespace. "$$(NAMESPACE)" is a literal "$(NAMESPACE)".
// Further tokens, such as $(LABEL:tier) and $(ANNOTATION:example.com/contact), stand for a label or an annotation of
// the namespace: see MetadataKey.Token.
const (
	NamespaceToken = "$(NAMESPACE)"
	CreatorToken   = "$(CREATOR)"
)

// The beginnings of tokens with a key. The key and ")" follow.
const (
	labelToken      = "$(LABEL:"
	annotationToken = "$(ANNOTATION:"
)

// Values replace the tokens.
type Values struct {
	Namespace string
	// Creator is the user who created the namespace, or empty if the user is unknown.
	Creator string
	// Labels and Annotations are those of the namespace.
	Labels, Annotations map[string]string
	// sample, if not empty, is the value of every label and annotation.
	sample string
}

// valueOf returns the value of a label or an annotation, or "" if the namespace has none.
func (v Values) valueOf(key MetadataKey) string {
	switch {
	case v.sample != "":
		return v.sample
	case key.Field == Labels:
		return v.Labels[key.Key]
	}
	return v.Annotations[key.Key]
}

// replacement returns the text that replaces a token. A token whose label or annotation the namespace lacks stays.
func (v Values) replacement(token string) string {
	switch token {
	case NamespaceToken:
		return v.Namespace
	case CreatorToken:
		return v.Creator
	}
	key, _ := keyIn(token)
	return cmp.Or(v.valueOf(key), token)
}

// Token returns the token that stands for a label or an annotation of the namespace.
func (k MetadataKey) Token() string {
	if k.Field == Labels {
		return labelToken + k.Key + ")"
	}
	return annotationToken + k.Key + ")"
}

// keyIn returns the label or the annotation of a token, and reports false for the other tokens.
func keyIn(token string) (MetadataKey, bool) {
	for field, begin := range map[string]string{Labels: labelToken, Annotations: annotationToken} {
		if rest, found := strings.CutPrefix(token, begin); found {
			return MetadataKey{field, strings.TrimSuffix(rest, ")")}, true
		}
	}
	return MetadataKey{}, false
}

// scan calls text for each literal part of s and token for each token in it, from left to right. Callers do not scan
// the value of a token again, so a creator named "$(NAMESPACE)" is kept as it is.
func scan(s string, text, token func(string)) {
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 {
			text(s)
			return
		}
		text(s[:at])
		s = s[at:]
		switch found, escaped := tokenAt(s), tokenAt(s[1:]); {
		case found != "":
			token(found)
			s = s[len(found):]
		case escaped != "":
			text(escaped)
			s = s[1+len(escaped):]
		default:
			text("$")
			s = s[1:]
		}
	}
}

// tokenAt returns the token that s begins with, or "".
func tokenAt(s string) string {
	for _, token := range []string{NamespaceToken, CreatorToken} {
		if strings.HasPrefix(s, token) {
			return token
		}
	}
	for _, begin := range []string{labelToken, annotationToken} {
		if rest, found := strings.CutPrefix(s, begin); found {
			if end := strings.IndexFunc(rest, isNotInKeys); end > 0 && rest[end] == ')' {
				return s[:len(begin)+end+1]
			}
		}
	}
	return ""
}

// isNotInKeys reports whether no key of a label or an annotation contains a character.
func isNotInKeys(r rune) bool {
	isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !isLetter && (r < '0' || r > '9') && !strings.ContainsRune("-_./", r)
}

// expand returns s with its tokens replaced.
func (v Values) expand(s string) string {
	if !strings.Contains(s, "$(") {
		return s
	}
	var out strings.Builder
	write := func(text string) { out.WriteString(text) }
	scan(s, write, func(token string) { write(v.replacement(token)) })
	return out.String()
}

// containsToken reports whether the strings of a JSON value contain a token that is not escaped.
func containsToken(value any, token string) bool {
	found := false
	eachToken(value, func(t string) { found = found || t == token })
	return found
}

// containsValue reports whether the strings of a JSON value contain a token, which is not escaped, of a label or an
// annotation.
func containsValue(value any) bool {
	found := false
	eachToken(value, func(token string) {
		_, isValue := keyIn(token)
		found = found || isValue
	})
	return found
}

// eachToken calls visit for each token in the strings of a JSON value.
func eachToken(value any, visit func(token string)) {
	for inside := range within(value) {
		if text, ok := inside.(string); ok && strings.Contains(text, "$(") {
			scan(text, func(string) {}, visit)
		}
	}
}

// UserToken returns a token in the strings of a JSON value for which users choose the text: that of the creator, of a
// label or of an annotation. It returns "" if there is none.
func UserToken(value any) string {
	found := ""
	eachToken(value, func(token string) {
		if token != NamespaceToken {
			found = token
		}
	})
	return found
}

// Literal returns s with escaped tokens unescaped, and whether it is the same in every namespace, which is so if it
// contains no token.
func Literal(s string) (text string, constant bool) {
	constant = true
	eachToken(s, func(string) { constant = false })
	return Values{}.expand(s), constant
}

// escape returns s with its tokens escaped, so that expand returns s.
func escape(s string) string {
	if !strings.Contains(s, "$(") {
		return s
	}
	var out strings.Builder
	for s != "" {
		if token := tokenAt(s); token != "" {
			out.WriteString("$" + token)
			s = s[len(token):]
			continue
		}
		out.WriteByte(s[0])
		s = s[1:]
	}
	return out.String()
}

// Escaped returns a JSON value with the tokens in its strings escaped. In a template, the result means the same text.
func Escaped(value any) any { return replaceStrings(value, escape) }
