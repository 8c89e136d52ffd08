package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Fault makes a gateway that runs with --dev cut this session's connections as docs/dev.md
// describes: fault is JSON such as {"fault": "tunnel"}. An empty fault ends all faults. It is for tests of applications.
func (c *Conn) Fault(ctx context.Context, fault string) error {
	to, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	to.Scheme = strings.Replace(to.Scheme, "ws", "http", 1)
	to.Path, to.RawPath, to.RawQuery = "/reseat.dev/faults", "", ""
	method := http.MethodPost
	if fault == "" {
		method = http.MethodDelete
	}
	r, err := http.NewRequestWithContext(ctx, method, to.String(), strings.NewReader(fault))
	if err != nil {
		return err
	}
	r.Header = c.header()
	r.Host = c.opts.Host
	r.Header.Set("Authorization", "Bearer "+*c.token.Load())
	resp, err := c.httpClient().Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("fault: %s: %s", resp.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
