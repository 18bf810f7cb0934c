package render

import "strings"

// Tokens that stand for a namespace's values in string fields. "$$(NAMESPACE)" is a literal "$(NAMESPACE)".
const (
	NamespaceToken = "$(NAMESPACE)"
	CreatorToken   = "$(CREATOR)"
)

// Values are what tokens stand for.
type Values struct {
	Namespace string
	// Creator is empty when it is not known who created the namespace.
	Creator string
}

// scan calls text for literal pieces of s and token for each token in it, left to right. What a token stands for is
// not scanned again, so a creator named "$(NAMESPACE)" stays that.
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

func tokenAt(s string) string {
	for _, token := range []string{NamespaceToken, CreatorToken} {
		if strings.HasPrefix(s, token) {
			return token
		}
	}
	return ""
}

// expand replaces the tokens in s.
func (v Values) expand(s string) string {
	if !strings.Contains(s, "$(") {
		return s
	}
	var out strings.Builder
	scan(s, func(text string) { out.WriteString(text) }, func(token string) {
		if token == CreatorToken {
			out.WriteString(v.Creator)
		} else {
			out.WriteString(v.Namespace)
		}
	})
	return out.String()
}

// holds tells whether a token stands in s, unescaped.
func holds(s, token string) bool {
	found := false
	scan(s, func(string) {}, func(t string) { found = found || t == token })
	return found
}

// Literal returns the text of s, and whether it is the same in every namespace: no token stands in it.
func Literal(s string) (text string, constant bool) {
	return Values{}.expand(s), !holds(s, NamespaceToken) && !holds(s, CreatorToken)
}

// Escaped returns a value of JSON with the tokens in its string fields escaped, so that they stand for themselves in a
// template.
func Escaped(value any) any {
	switch value := value.(type) {
	case string:
		return strings.NewReplacer(NamespaceToken, "$"+NamespaceToken, CreatorToken, "$"+CreatorToken).Replace(value)
	case []any:
		escaped := make([]any, len(value))
		for i, item := range value {
			escaped[i] = Escaped(item)
		}
		return escaped
	case map[string]any:
		escaped := make(map[string]any, len(value))
		for key, field := range value {
			escaped[key] = Escaped(field)
		}
		return escaped
	}
	return value
}
