package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// item is what a conversion reports as one: an object of the other tool, or a rule in it.
type item struct {
	// from is the item, and to are the objects that it became.
	from string
	to   []string
	// converted is the number of parts that were converted. Needs and lost have a sentence about each other part: what
	// a person has to decide or to do, and what nstpl cannot do.
	converted   int
	needs, lost []string
}

// item returns the item of a name, which it adds if there is none.
func (d *draft) item(format string, args ...any) *item {
	name := fmt.Sprintf(format, args...)
	if i := slices.IndexFunc(d.items, func(i *item) bool { return i.from == name }); i >= 0 {
		return d.items[i]
	}
	d.items = append(d.items, &item{from: name})
	return d.items[len(d.items)-1]
}

// lose adds a sentence about a part that cannot be converted, also to the comments of an object.
func (i *item) lose(at *notes, format string, args ...any) {
	i.lost = append(i.lost, at.add("lost: "+format, args...))
}

// need adds a sentence about what a person has to do, also to the comments of an object. An item has each sentence
// once.
func (i *item) need(at *notes, format string, args ...any) {
	if text := at.add("needs you: "+format, args...); !slices.Contains(i.needs, text) {
		i.needs = append(i.needs, text)
	}
}

// nameFields adds a sentence about each field that is set and not converted: what to do instead, if that is not "".
func (i *item) nameFields(
	at *notes, prefix string, fields map[string]any, instead map[string]string, converted ...string,
) {
	for _, field := range unlisted(fields, converted...) {
		switch remedy, isKnown := instead[field]; {
		case !isKnown:
			i.lose(at, "%s%s: it is not known to this command", prefix, field)
		case remedy != "":
			i.need(at, "%s%s: %s", prefix, field, remedy)
		default:
			i.lose(at, "%s%s: it has no counterpart", prefix, field)
		}
	}
}

// fail adds the reason why a part was not converted: as a need if there is a remedy.
func (i *item) fail(at *notes, what string, err error) {
	if reason := (remedy{}); errors.As(err, &reason) {
		i.need(at, "%s: %s", what, sentence(err))
		return
	}
	i.lose(at, "%s: %s", what, sentence(err))
}

// remedy is an error that says what a person can do instead.
type remedy struct{ error }

// became records the object that an item became, with a number of parts.
func (i *item) became(object string, parts int) {
	i.to, i.converted = append(i.to, object), i.converted+parts
}

// printResult prints a line for each part that was not converted, and a table of the items.
func (d *draft) printResult(w io.Writer) error {
	table := output.Table{Columns: []string{"From", "To", "Converted", "Needs you", "Lost"}}
	for _, i := range d.items {
		for _, text := range slices.Concat(i.needs, i.lost) {
			result, text, _ := strings.Cut(text, ": ")
			output.Note(w, "%s: %s: %s", result, i.from, text)
		}
		table.Rows = append(table.Rows, []string{
			i.from, cmp.Or(strings.Join(i.to, ","), "<none>"), strconv.Itoa(i.converted), strconv.Itoa(len(i.needs)),
			strconv.Itoa(len(i.lost)),
		})
	}
	for _, text := range d.leftOut {
		output.Note(w, "%s", text)
	}
	if len(table.Rows) == 0 || len(table.Rows) == 1 && len(d.items[0].needs)+len(d.items[0].lost) == 0 {
		return nil // all of the only item was converted
	}
	return table.Print(w, false)
}
