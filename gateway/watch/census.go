package watch

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// A census collects what the sessions count themselves. It asks them when it is scraped,
// so that messages need not update any metric.
type census struct{ *Watch }

var (
	descSessions = prometheus.NewDesc("reseat_sessions", "Living sessions, by state.", []string{"state"}, nil)
	descMessages = prometheus.NewDesc("reseat_messages_total", "Data messages relayed, each once; replays are not counted.", []string{"direction"}, nil)
	descBytes    = prometheus.NewDesc("reseat_message_bytes_total", "Payload of the data messages relayed.", []string{"direction"}, nil)
	descReplayed = prometheus.NewDesc("reseat_replayed_messages_total", "Messages that resumes had to replay.", nil, nil)
	descDropped  = prometheus.NewDesc("reseat_dropped_messages_total", "Messages dropped by --overflow drop-oldest.", nil, nil)
	descSkipped  = prometheus.NewDesc("reseat_skipped_messages_total", "Messages of a client that was away or slow that newer ones have replaced, --newest.", nil, nil)
	descBuffer   = prometheus.NewDesc("reseat_buffer_bytes", "Memory held by all replay buffers.", nil, nil)
	descLimit    = prometheus.NewDesc("reseat_buffer_limit_bytes", "Maximum memory of all replay buffers, --buffer-total.", nil, nil)
	descWindows  = prometheus.NewDesc("reseat_compression_window_bytes", "Memory of compressing clients' windows, a part of reseat_buffer_bytes.", nil, nil)
	descDraining = prometheus.NewDesc("reseat_draining", "1 while the gateway drains and refuses new sessions, else 0.", nil, nil)
	descForwards = prometheus.NewDesc("reseat_forwarded_connections", "Client connections that this node passes on to another (out), or that another passes on to this one (in).", []string{"direction"}, nil)
	descDurable  = prometheus.NewDesc("reseat_durable_sessions", "Living durable sessions: covered ones another node can go on with; for exposed ones NATS does not have what that takes.", []string{"state"}, nil)
	descLoops    = prometheus.NewDesc("reseat_loops", "Event loops that take new sessions; 0 with --driver net.", nil, nil)
	descBusy     = prometheus.NewDesc("reseat_loop_busy_seconds_total", "Time that an event loop has spent serving, its handshakes excluded.", []string{"loop"}, nil)
	descOnLoop   = prometheus.NewDesc("reseat_loop_sessions", "Sessions of an event loop.", []string{"loop"}, nil)
	descMoves    = prometheus.NewDesc("reseat_loop_moves_total", "Sessions that an event loop has handed to another.", []string{"loop"}, nil)
	descMissed   = prometheus.NewDesc("reseat_events_missed_total", "Events that readers of the event stream were too slow for; each reader is notified of the gap.", nil, nil)
)

func (c *census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descSessions, descMessages, descBytes, descReplayed, descDropped, descSkipped,
		descBuffer, descLimit, descWindows, descDraining, descForwards, descDurable, descLoops, descBusy, descOnLoop, descMoves, descMissed,
	} {
		ch <- d
	}
}

func (c *census) Collect(ch chan<- prometheus.Metric) {
	all := c.o.Registry.Survey()
	states, total := all.Census()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for state := session.Connecting; state < session.Ended; state++ {
		gauge(descSessions, float64(states[state]), state.String())
	}
	counter(descMessages, total.ToUpstream, "to_upstream")
	counter(descMessages, total.ToClient, "to_client")
	counter(descBytes, total.ToUpstreamBytes, "to_upstream")
	counter(descBytes, total.ToClientBytes, "to_client")
	counter(descReplayed, total.Replayed)
	counter(descDropped, total.Dropped)
	counter(descSkipped, total.Skipped)
	gauge(descBuffer, float64(c.o.Store.Used()))
	gauge(descLimit, float64(c.o.Store.Limit()))
	gauge(descWindows, float64(c.o.Windows()))
	draining := 0.0
	if c.o.Drain().Draining {
		draining = 1
	}
	gauge(descDraining, draining)
	in, out := c.o.Forwarded()
	gauge(descForwards, float64(in), "in")
	gauge(descForwards, float64(out), "out")
	durable := countDurable(&all)
	gauge(descDurable, float64(durable.Covered), registry.Covered)
	gauge(descDurable, float64(durable.Exposed), registry.Exposed)
	loops := c.o.Loops()
	gauge(descLoops, float64(transport.InUse(loops)))
	for i, l := range loops {
		loop := strconv.Itoa(i)
		ch <- prometheus.MustNewConstMetric(descBusy, prometheus.CounterValue, l.Busy.Seconds(), loop)
		gauge(descOnLoop, float64(l.Sessions), loop)
		counter(descMoves, l.Moved, loop)
	}
	counter(descMissed, c.Events.Missed())
}
