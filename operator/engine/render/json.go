package render

import "iter"

// within returns a JSON value and every value in it, each before those in it.
func within(value any) iter.Seq[any] {
	return func(yield func(any) bool) { visit(value, yield) }
}

func visit(value any, yield func(any) bool) bool {
	if !yield(value) {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if !visit(field, yield) {
				return false
			}
		}
	case []any:
		for _, item := range value {
			if !visit(item, yield) {
				return false
			}
		}
	}
	return true
}

// replace returns a copy of a JSON value with other scalars.
func replace(value any, scalar func(any) any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, field := range value {
			fields[key] = replace(field, scalar)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = replace(item, scalar)
		}
		return items
	}
	return scalar(value)
}

// replaceStrings returns a copy of a JSON value with other strings.
func replaceStrings(value any, replaced func(string) string) any {
	return replace(value, func(scalar any) any {
		if text, ok := scalar.(string); ok {
			return replaced(text)
		}
		return scalar
	})
}
