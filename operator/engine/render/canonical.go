package render

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// appendJSON appends what json.Marshal returns for a value of JSON. Most values of objects are maps and plain strings,
// for which it needs no reflection: the operator hashes each object of each namespace.
func appendJSON(to []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case map[string]any:
		return appendMap(to, value)
	case []any:
		if value == nil {
			return append(to, "null"...), nil
		}
		to = append(to, '[')
		for i, item := range value {
			if i > 0 {
				to = append(to, ',')
			}
			var err error
			if to, err = appendJSON(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case string:
		return appendString(to, value)
	case int64:
		return strconv.AppendInt(to, value, 10), nil
	case bool:
		return strconv.AppendBool(to, value), nil
	}
	return appendMarshalled(to, value)
}

func appendMap(to []byte, fields map[string]any) ([]byte, error) {
	if fields == nil {
		return append(to, "null"...), nil
	}
	keys := slices.AppendSeq(make([]string, 0, len(fields)), maps.Keys(fields))
	slices.Sort(keys)
	to = append(to, '{')
	for i, key := range keys {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = appendString(to, key); err != nil {
			return nil, err
		}
		if to, err = appendJSON(append(to, ':'), fields[key]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

func appendString(to []byte, text string) ([]byte, error) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return appendMarshalled(to, text) // which escapes or replaces it
		}
	}
	to = append(to, '"')
	return append(append(to, text...), '"'), nil
}

func appendMarshalled(to []byte, value any) ([]byte, error) {
	data, err := json.Marshal(value)
	return append(to, data...), err
}
