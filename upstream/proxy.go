package upstream

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// ProxyOptions configure a Proxy. The zero value is usable.
type ProxyOptions struct {
	// DialTimeout bounds the TCP and TLS handshakes, not the wait for an answer.
	// Zero means 10 seconds.
	DialTimeout time.Duration
	// Trusted are the --trusted-proxy networks.
	Trusted []netip.Prefix
	// Edit may change a copy of the client's Header, and the RawQuery, before they
	// are used: to remove a cookie of the gateway, or a login. Nil changes
	// nothing.
	Edit func(*Request)
	// Own returns the gateway's own headers for a request, set last. Nil means none.
	Own func(*http.Request) http.Header
	// TrustedHeaders are further headers that pass from a trusted proxy only.
	TrustedHeaders []string
	// Log gets one line for each request that failed at the upstream. Nil means
	// slog.Default.
	Log *slog.Logger
}

// A Proxy is a reverse proxy for ordinary HTTP requests: docs/flags.md,
// --http. Bodies are streamed unchanged both ways, and an upstream may take as long to
// respond as the client waits.
//
// It never switches protocols: Upgrade is removed from requests, a request for a
// WebSocket gets 400, CONNECT 405, and an upstream's 101 becomes 502.
type Proxy struct {
	target    *Target
	opts      ProxyOptions
	transport *http.Transport
	reverse   *httputil.ReverseProxy
}

// Proxy returns a reverse proxy of the target. It keeps idle connections of its
// own, so one per target is enough.
func (t *Target) Proxy(o ProxyOptions) *Proxy {
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Proxy{target: t, opts: o, transport: t.transport(o.DialTimeout)}
	p.reverse = &httputil.ReverseProxy{
		Transport:      roundTrip(p.send),
		Rewrite:        p.rewrite,
		ModifyResponse: modify,
		ErrorHandler:   p.fail,
		FlushInterval:  -1, // flush after every write: events, long polling
		BufferPool:     copyBuffers{},
		ErrorLog:       log.New(io.Discard, "", 0), // its lines quote the upstream; see loggedBody
	}
	return p
}

// transport keeps idle connections for less than the 5 seconds after which some
// servers close them (Node.js), since a POST that meets such a close cannot be
// sent again. It dials the target whatever URL it is given.
func (t *Target) transport(dialTimeout time.Duration) *http.Transport {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return t.connect(ctx)
	}
	tr := &http.Transport{
		Proxy:                  nil,
		DialContext:            connect,
		DialTLSContext:         connect,
		DisableCompression:     true, // bodies pass as they are
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        4 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHead,
		Protocols:              new(http.Protocols),
	}
	tr.Protocols.SetHTTP1(true)
	return tr
}

// Close closes the idle connections. Requests in flight are not affected.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }

// ServeHTTP passes the request on to the target.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Time{}) // an earlier request's
	defer func() { control.SetWriteDeadline(time.Now().Add(WriteTimeout)) }()
	switch {
	case r.Method == http.MethodConnect:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")
		http.Error(w, "this is not a forward proxy", http.StatusMethodNotAllowed)
		return
	case httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket"):
		http.Error(w, "not a valid WebSocket handshake", http.StatusBadRequest)
		return
	}
	body := newClientBody(r, control)
	defer body.leave()
	in := r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
	in.Body = body
	ask := Request{Header: r.Header}
	ask.Path, ask.RawQuery, ask.ForceQuery = ClientTarget(r)
	if p.opts.Edit != nil {
		ask.Header = r.Header.Clone()
		p.opts.Edit(&ask)
	}
	var own http.Header
	if p.opts.Own != nil {
		own = p.opts.Own(r)
	}
	in.Header = RequestHeader(ask.Header, NewPeer(r, p.opts.Trusted), p.opts.TrustedHeaders, own)
	in.URL = p.target.requestURL(&ask)
	w.Header()["Content-Type"] = nil // none, rather than net/http's guess
	p.reverse.ServeHTTP(&timeoutWriter{w, control, w.Header().Clone(), r.ProtoMajor == 1}, in)
}

// rewrite makes the outgoing request. The headers of In are already those for the
// upstream. Trailers are dropped, because no header rule applies to them.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL = pr.In.URL
	pr.Out.Host = p.target.host(pr.In.Host)
	pr.Out.Header = pr.In.Header
	pr.Out.Trailer = nil
}

var (
	errSwitched      = errors.New("upstream switched protocols without a request")
	errNoValidAnswer = errors.New("no valid answer")
)

// roundTrip is a function as an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send sends a request to the upstream. The headers that may reach the client are in the body
// of the response, where ReverseProxy cannot remove those that the status needs.
func (p *Proxy) send(r *http.Request) (*http.Response, error) {
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, errSwitched
	}
	pass := passed(resp.Header, resp.StatusCode, func(*fieldName) bool { return false })
	resp.Body = &loggedBody{ReadCloser: resp.Body, header: pass, failed: func(err error) { p.logFailure(r, err) }}
	return resp, nil
}

// modify gives the response the headers that may reach the client.
func modify(resp *http.Response) error {
	resp.Header = resp.Body.(*loggedBody).header
	return nil
}

// fail responds to a request that got no response from the upstream.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if body, ok := r.Context().Value(bodyKey{}).(*clientBody); ok {
		if status := body.failed(); status > 0 {
			http.Error(w, "the request body could not be read", status)
			return
		}
	}
	p.logFailure(r, err)
	WriteError(w, failure(err))
}

// logFailure logs an upstream's failure, unless the client disconnected. The path is
// logged without its query, which may contain a login.
func (p *Proxy) logFailure(r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	path, _, _ := ClientTarget(r)
	e := failure(err)
	p.opts.Log.Warn("upstream.request_failed", "upstream", p.target.Address(), "method", r.Method,
		"path", path[:min(len(path), 256)], "kind", e.Kind.String(), "reason", e.Err.Error())
}

// failure returns the Error, without Addr, for an error of the transport.
func failure(err error) *Error {
	var e *Error
	var op *net.OpError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errSwitched):
		return &Error{Kind: BadAnswer, Err: errSwitched}
	case isTimeout(err):
		return &Error{Kind: Timeout, Err: errNotInTime}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return &Error{Kind: BadAnswer, Err: errNoAnswer}
	}
	return &Error{Kind: BadAnswer, Err: errNoValidAnswer}
}

// A loggedBody reports the error that truncated an upstream's body.
type loggedBody struct {
	io.ReadCloser
	header http.Header // that may reach the client
	failed func(error)
}

func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.failed(err)
	}
	return n, err
}

// copyBuffers lends the buffers for copying bodies.
type copyBuffers struct{}

var copyPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (copyBuffers) Get() []byte  { return copyPool.Get().(*[32 << 10]byte)[:] }
func (copyBuffers) Put(b []byte) { copyPool.Put((*[32 << 10]byte)(b)) }
