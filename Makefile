# Everything that one does with this repository. `make` alone prints the list.

GO      ?= go
BIN     := bin/reseat
LDFLAGS := -s -w
RACE    := -race

HARNESS := gateway/internal/test/harness

.DEFAULT_GOAL := help
.PHONY: help build build-race run cluster test proof test-go test-web test-play test-harness test-acme test-peers test-operate test-e2e test-engines test-release simulate verify chaos chaos-cluster chaos-durable failover engine mutants soak drain freeze unit fuzz bench bench-short bench-scale bench-micro bench-compare check lint lint-go lint-web release vulns test-vulns tools tools-proof clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/reseat
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) .

run: build ## build and serve the demo; open the address that it prints; ARGS='--listen :8090'
	@$(BIN) --demo --log-format text $(ARGS)

BUILD_CLUSTER = $(GO) build -C $(HARNESS) -o $(abspath bin/cluster) ./cluster
cluster: build bin/nats-server ## three gateways and a NATS server on this machine, with the demo; Ctrl-C ends all; PORT=9081
	$(BUILD_CLUSTER)
	@bin/cluster -bin $(BIN) -nats bin/nats-server $(if $(PORT),-port $(PORT))

# What npm writes last.
MODULES := node_modules/.package-lock.json
%/$(MODULES): %/package-lock.json
	cd $* && npm ci --no-audit --no-fund

# What must hold before a change is shown, and all the rest. Each prints the seconds of its parts.
test: ## install what is missing and prove the product, in ten minutes on two cores
	@./.ci/parts tools test-go test-web test-play

proof: ## install what is missing and prove the rest, in 25 minutes: real processes, proxies, browsers, libraries, releases
	@./.ci/parts tools-proof lint test-vulns test-harness test-operate test-acme test-peers test-e2e test-release

test-go: ## Go tests under the race detector; the simulation's short form, which has no goroutines, and allocations without it
	$(GO) test $(RACE) -timeout=10m $$($(GO) list ./... | grep -v /test/sim$$)
	$(GO) test ./gateway/internal/test/sim
	$(GO) test -run=Alloc $$(git grep -l '^func Test.*Alloc' gateway | xargs -n1 dirname | sort -u | sed 's,^,./,')

test-web: web/$(MODULES) ## the tests of the browser client, the demo and the dashboard, in Node
	cd web && node --test test/ demo/ dev/ dashboard/

test-play: build web/e2e/$(MODULES) testdata/peers/$(MODULES) ## the demo in Chromium and Firefox: play, cut each way, resume; and Socket.IO
	cd web/e2e && npm run --silent short
	cd testdata/peers && node --test --test-force-exit socketio.page.test.js

build-race: ## build bin/reseat-race, which the tests start as a process: a race in it ends it, with exit code 66
	$(GO) build -race -o bin/reseat-race .
UNDER_RACE = RESEAT_BIN=$(abspath bin/reseat-race)

test-harness: build build-race ## short chaos, clusters, failover, soak, interoperability, and the tests of the harness itself
	cd $(HARNESS) && $(GO) test -count=1 -timeout=20m -parallel 6 $$($(GO) list ./... | grep -Ev '/(engine|interop)$$') # they mostly wait
	$(GO) test -count=1 ./gateway -compression # the same rules for clients that compress
	cd $(HARNESS) && $(GO) test -count=1 $(RACE) -timeout=20m -parallel 6 ./engine ./interop # which run the product's code themselves

test-acme: build-race ## certificates from a real ACME CA, pebble
	cd testdata/acme && $(UNDER_RACE) $(GO) test -count=1 -timeout=10m ./...

test-peers: build-race testdata/peers/$(MODULES) ## Socket.IO, Colyseus and others through the gateway
	cd testdata/peers && $(UNDER_RACE) npm test

bin/nats-server: .ci/go-tools.mod
	$(GO) build -modfile=.ci/go-tools.mod -o $@ github.com/nats-io/nats-server/v2

test-operate: build build-race bin/nats-server ## behind nginx, HAProxy and Caddy; upgrades, the dashboard, the alerts and the files of docs/deploy
	cd testdata/operate && $(GO) vet ./... && $(UNDER_RACE) $(GO) test -count=1 -timeout=20m ./...

test-e2e: build bin/nats-server web/e2e/$(MODULES) ## the demo, the client and the dashboard in headless Chromium; in Firefox and WebKit, in short
	$(BUILD_CLUSTER)
	cd web/e2e && npm test

test-engines: build web/e2e/$(MODULES) ## Chromium, Firefox and WebKit through outages, reloads, sleep and the like, and beside the native WebSocket; 20 minutes; ENGINES='Firefox' OUTAGES='90 300'
	cd web/e2e && npm run engines

test-release: testdata/release/$(MODULES) ## what make release builds: packages, bundlers, React and Vue, SBOM, two builds compared; RELEASE_PLATFORMS='linux/amd64 windows/amd64'
	cd testdata/release && npm test

simulate: ## the simulation of the session core, for longer: SEEDS=20000
	$(GO) test ./gateway/internal/test/sim -timeout 60m -v -run TestSimulation -sim.seeds $(or $(SEEDS),20000)

verify: ## the model of the protocol, exhaustively, with Spin; DEEP=1 for larger bounds
	./testdata/model/verify.sh

CHAOS = cd $(HARNESS) && $(GO) run ./chaos -bin $(abspath $(BIN))
chaos: build ## a real gateway through 5,000 cuts, both drivers, and upgrades every four seconds; SEED=7; in network namespaces where one may make them
	$(CHAOS) -driver net $(if $(SEED),-seed $(SEED))
	$(CHAOS) -driver poll $(if $(SEED),-seed $(SEED))
	$(CHAOS) -tls -short $(if $(SEED),-seed $(SEED))
	$(CHAOS) -driver poll -upgrade 4s $(if $(SEED),-seed $(SEED))
	$(CHAOS) -moves -short -upgrade 3s $(if $(SEED),-seed $(SEED)) # between four event loops at each turn
	$(CHAOS) -tls -driver poll -upgrade 4s $(if $(SEED),-seed $(SEED)) # their connections stay in the older process
	if [ "$$(id -u)" = 0 ] && command -v ip >/dev/null; then ($(CHAOS) -links -short $(if $(SEED),-seed $(SEED))); else echo "no links taken down: that takes root and ip"; fi

chaos-cluster: build bin/nats-server ## three gateways and three NATS servers, faults on every line between them, all of them killed and stopped; MINUTES=60 SEED=7 ONLY=durable DRIVER=net
	$(CHAOS) -cluster $(or $(MINUTES),60)m -driver $(or $(DRIVER),poll) -v -nats $(abspath bin/nats-server) $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

bin/counting: $(wildcard docs/games/counting-go/*.go)
	$(GO) build -o $@ ./docs/games/counting-go

COUNTING = -nats $(abspath bin/nats-server) -counting $(abspath bin/counting)
chaos-durable: build bin/nats-server bin/counting ## the counting game, while gateways and NATS servers are killed, stopped and drained; MINUTES=60 SEED=7 DRIVER=net
	$(CHAOS) -cluster $(or $(MINUTES),60)m -only 'counting game' -driver $(or $(DRIVER),poll) -v $(COUNTING) $(if $(SEED),-seed $(SEED))

failover: build bin/nats-server bin/counting ## how long the sessions of a gateway that is killed, or drained, take to go on at others: SESSIONS=200; a storm: SESSIONS=2000
	for driver in net poll; do ($(CHAOS) -failover $(or $(SESSIONS),200) -driver $$driver $(COUNTING)) || exit 1; done

engine: bin/nats-server ## conditional writes while NATS servers are killed and stopped: none accepted twice, none lost; MINUTES=60 SEED=7
	cd $(HARNESS) && $(GO) test -count=1 -v -run 'Kills|Twice' -timeout 0 ./engine -minutes $(or $(MINUTES),60) -nats $(abspath bin/nats-server) $(if $(SEED),-seed $(SEED))

mutants: ## plant bugs, one at a time, and see which test notices; ARGS='-only session/'
	$(GO) run ./gateway/internal/test/mutants $(ARGS)

soak: build ## 100,000 sessions come and go: memory, goroutines and descriptors; ARGS='-driver poll -sessions 20000'
	cd $(HARNESS) && $(GO) run ./soak -bin $(abspath $(BIN)) $(ARGS)

drain: build ## thousands of sessions sent away at once, by SIGTERM and by the API; SESSIONS=5000
	cd testdata/operate && $(GO) test -count=1 -v -run 'TestDrain(Notifies|ByTheAPI)' -sessions $(or $(SESSIONS),5000) .

freeze: build ## how long an upgrade keeps sessions from being served; SESSIONS=8000
	for driver in net poll; do (cd testdata/operate && $(GO) test -count=1 -v -run TestUpgradesMoveAllSessions/$$driver -frozen $(or $(SESSIONS),8000) -upgrades 10 .) || exit 1; done

unit: build ## the systemd unit under a running systemd, in a container; takes root, debootstrap and systemd-nspawn
	./.ci/unit

FUZZTIME ?= 60s
fuzz: ## every fuzz target, FUZZTIME each
	./.ci/fuzz $(FUZZTIME)

BENCH = cd $(HARNESS) && $(GO) run ./bench --reseat $(abspath $(BIN)) --nats $(abspath bin/nats-server)

bench: build bin/nats-server ## measure Reseat beside nginx, HAProxy and others; some twenty minutes; writes docs/performance.md
	./.ci/tools proof
	$(BENCH) --out $(CURDIR)/docs $(ARGS)
	$(BENCH) --scale

bench-scale: build ## how Reseat and nginx scale from one to eight processors; takes twelve, and says so where there are fewer
	./.ci/tools proof
	$(BENCH) --scale $(ARGS)

bench-short: build bin/nats-server ## the same in three minutes, tables only; ARGS='--only W1 --rounds 5'
	./.ci/tools proof
	$(BENCH) --short $(ARGS)

MICRO := -run '^$$' -bench . -benchmem ./gateway/... ./tokens/... ./upstream/...

bench-micro: ## micro-benchmarks of the hot pieces
	$(GO) test $(MICRO)

bench-compare: ## micro-benchmarks, another revision's and this one's side by side: BASE=HEAD~1
	./.ci/bench-compare '$(BASE)' $(or $(COUNT),6) $(MICRO)

check: lint-go ## the fast inner loop: lint and the Go tests, without the race detector; no npm, no root
	$(GO) test ./...

lint: lint-go lint-web ## gofmt, go vet (for Windows and macOS too), staticcheck; eslint and prettier where node is

lint-go: ## the Go part of lint
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	@! git grep -n '^<<<<<<< \|^>>>>>>> ' || { echo "merge conflicts were committed"; exit 1; }
	@! git ls-files -z | xargs -0 ls -l | awk '$$5 > 1048576 { print $$9; large = 1 } END { exit !large }' || { echo "larger than a source: was a program committed?"; exit 1; }
	$(GO) vet ./...
	GOOS=windows $(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) vet .ci/sbom.go
	$(GO) build -modfile=.ci/go-tools.mod -o bin/ honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	bin/staticcheck .ci/sbom.go
	cd $(HARNESS) && $(GO) vet ./... && $(CURDIR)/bin/staticcheck ./... && $(GO) build -o $(CURDIR)/bin/idle ./idle && $(GO) vet -vettool=$(CURDIR)/bin/idle ./...
	$(GO) vet -vettool=$(CURDIR)/bin/idle ./... # tests that cannot fail

lint-web: ## the JavaScript part of lint
	@if command -v npm >/dev/null; then cd web && { [ -d node_modules/eslint ] || npm ci --no-audit --no-fund; } && npm run --silent lint; \
	else echo "NOT LINTED: web/, since there is no npm"; fi

release: ## static binaries for Linux, macOS and Windows, Debian and npm packages, SBOM and checksums, in dist/: VERSION=v1.2.3
	./.ci/release '$(VERSION)'

VULNS := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOVULNDB ?= https://vuln.go.dev
vulns: ## known vulnerabilities in what is built in; needs the network, or GOVULNDB=file:///a/copy/of/the/database
	$(GO) run $(VULNS) -db '$(GOVULNDB)' ./...

REACHABLE = node -e "fetch(process.argv[1], { signal: AbortSignal.timeout(10000) }).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"
test-vulns: ## the same, where its database can be reached; says so where it cannot
	@if $(REACHABLE) '$(GOVULNDB)/index/db.json'; then $(MAKE) --no-print-directory vulns; \
	else echo "KNOWN VULNERABILITIES WERE NOT LOOKED FOR: $(GOVULNDB) cannot be reached"; fi

tools: ## install Node.js, npm, Chromium and Firefox from the distribution where they are missing
	@./.ci/tools

tools-proof: ## the same for what make proof needs: WebKit, nginx, HAProxy, Caddy and others
	@./.ci/tools proof

clean: ## remove what was built
	rm -rf bin dist web/node_modules web/e2e/node_modules web/e2e/out testdata/peers/node_modules testdata/release/node_modules testdata/release/out
