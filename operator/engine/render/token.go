package render

import (
	"slices"
	"strings"
)

// Tokens are replaced in string fields by the values of a namespace. "$$(NAMESPACE)" is a literal "$(NAMESPACE)".
const (
	NamespaceToken = "$(NAMESPACE)"
	CreatorToken   = "$(CREATOR)"
)

// Values replace the tokens.
type Values struct {
	Namespace string
	// Creator is the user who created the namespace, or empty if the user is unknown.
	Creator string
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
	return ""
}

// expand returns s with its tokens replaced.
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

// containsToken reports whether s contains a token that is not escaped.
func containsToken(s, token string) bool {
	found := false
	scan(s, func(string) {}, func(t string) { found = found || t == token })
	return found
}

// needsCreator reports whether a JSON value contains the token of the creator.
func needsCreator(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if needsCreator(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, needsCreator)
	case string:
		return containsToken(value, CreatorToken)
	}
	return false
}

// Literal returns s with escaped tokens unescaped, and whether it is the same in every namespace, which is so if it
// contains no token.
func Literal(s string) (text string, constant bool) {
	return Values{}.expand(s), !containsToken(s, NamespaceToken) && !containsToken(s, CreatorToken)
}

var escaper = strings.NewReplacer(NamespaceToken, "$"+NamespaceToken, CreatorToken, "$"+CreatorToken)

// Escaped returns a JSON value with the tokens in its strings escaped. In a template, the result means the same text.
func Escaped(value any) any {
	switch value := value.(type) {
	case string:
		return escaper.Replace(value)
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
