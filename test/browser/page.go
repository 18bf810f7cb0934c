package browser

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// Page is an open page.
type Page struct {
	b       *Browser
	session string
	loaded  chan struct{}

	mu       sync.Mutex
	requests []string
	errors   []string
}

// NewPage opens an empty page.
func (b *Browser) NewPage() *Page {
	b.t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &Page{b: b, session: attached.SessionID, loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		p.call(domain+".enable", nil, nil)
	}
	return p
}

func (p *Page) call(method string, params, result any) {
	p.b.t.Helper()
	p.b.call(p.session, method, params, result)
}

// event records requests, errors and warnings.
func (p *Page) event(method string, params json.RawMessage) {
	var event struct {
		Type    string `json:"type"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Entry struct {
			Level, Text string
		} `json:"entry"`
	}
	_ = json.Unmarshal(params, &event) // other events have other fields
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case method == "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case method == "Network.requestWillBeSent":
		p.requests = append(p.requests, event.Request.URL)
	case method == "Runtime.exceptionThrown", method == "Runtime.consoleAPICalled":
		p.errors = append(p.errors, string(params))
	case method == "Log.entryAdded" && event.Entry.Level != "verbose" && event.Entry.Level != "info":
		p.errors = append(p.errors, event.Entry.Text)
	}
}

// Open loads a page and waits until it is loaded.
func (p *Page) Open(url string) {
	p.b.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	select {
	case <-p.loaded:
	case <-time.After(patience):
		require.FailNow(p.b.t, "the page is not loaded: "+url)
	}
}

// Requests returns the URLs that the page requested, and Errors what it or the browser wrote to the console.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.requests...)
}

// Errors returns what the page, or the browser about it, wrote to the console.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.errors...)
}

// Eval evaluates an expression of JavaScript in the page, awaits it if it is a promise, and stores its value in result.
// It also works in a page that is not allowed to run scripts.
func (p *Page) Eval(expression string, result any) {
	p.b.t.Helper()
	var evaluated struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &evaluated)
	require.Empty(p.b.t, evaluated.ExceptionDetails, expression)
	if result != nil {
		require.NoError(p.b.t, json.Unmarshal(evaluated.Result.Value, result), expression)
	}
}

// Resize sets the size of the window.
func (p *Page) Resize(width, height int) {
	p.b.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
}

// Media sets the medium, such as print, and whether the user prefers dark or light colours. The medium may be empty.
func (p *Page) Media(medium, scheme string) {
	p.b.t.Helper()
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"media": medium, "features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// DisableScripts keeps pages that are opened later from running scripts.
func (p *Page) DisableScripts() {
	p.b.t.Helper()
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
}

// Screenshot returns a picture of the visible part of the page, in the format PNG.
func (p *Page) Screenshot() []byte {
	p.b.t.Helper()
	var shot struct {
		Data []byte `json:"data"`
	}
	p.call("Page.captureScreenshot", nil, &shot)
	return shot.Data
}

// Node is an element as assistive technology sees it.
type Node struct{ Role, Name string }

// Nodes returns the elements of the page as assistive technology sees them.
func (p *Page) Nodes() []Node {
	p.b.t.Helper()
	type value struct {
		Value any `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	p.call("Accessibility.getFullAXTree", nil, &tree)
	var nodes []Node
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if !n.Ignored {
			nodes = append(nodes, Node{role, name})
		}
	}
	return nodes
}
