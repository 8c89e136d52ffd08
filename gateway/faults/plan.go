package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// A Planned is a fault of a plan.
type Planned struct {
	At time.Duration // from the beginning of the plan
	Fault
	// Body is the fault as the control API takes it.
	Body []byte
}

// ParsePlan reads a plan in TOML: tables [[fault]] with the members of a fault, and at. It returns
// them in the order of their times.
func ParsePlan(text []byte) ([]Planned, error) {
	var document struct {
		Fault []map[string]any
	}
	if err := toml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Fault) == 0 {
		return nil, errors.New(`want [[fault]] tables, such as at = "10s", fault = "tunnel"`)
	}
	var plan []Planned
	for i, members := range document.Fault {
		p, err := planned(maps.Clone(members))
		if err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		plan = append(plan, p)
	}
	slices.SortStableFunc(plan, func(a, b Planned) int { return int(a.At - b.At) })
	return plan, nil
}

func planned(members map[string]any) (p Planned, err error) {
	at, ok := members["at"].(string)
	if p.At, err = duration("at", at, 24*time.Hour); err != nil || !ok {
		return p, errors.Join(err, errors.New(`want at, such as at = "10s"`))
	}
	delete(members, "at")
	if p.Body, err = json.Marshal(members); err == nil {
		p.Fault, err = Parse(p.Body)
	}
	return p, err
}
