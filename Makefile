.DEFAULT_GOAL := help

CONTROLLER_GEN := go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
CRD_REF_DOCS := go run github.com/elastic/crd-ref-docs@v0.3.0
KINDS := $(CRD_REF_DOCS) --source-path=operator/api/v1alpha1 --config=operator/api/reference/config.yaml --templates-dir=operator/api/reference --renderer=markdown --log-level=ERROR
HYDRATE := go run ./cmd/kubectl-nstpl hydrate manifests/samples/foo-corp
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Replaces the pattern of quantities in the CustomResourceDefinitions of a folder by one that allows no large exponents: to
# parse or compare those takes minutes and much memory (see operator/engine/quantities). No marker reaches the values of
# maps. Times get a pattern too: the API server accepts those in lower case, such as 2030-01-31t18:00:00z, with which no
# client in Go can read any object of the kind.
QUANTITY := ^[+-]?([0-9]{1,64}(\\.[0-9]{0,64})?|\\.[0-9]{1,64})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$$
TIME := ^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$$
BOUND_VALUES = for crd in $(1)/*_*.yaml; do \
	awk '/pattern: .*numkMGTPE/ {sub(/pattern: .*/, "pattern: $(QUANTITY)")} {print} \
		/format: date-time$$/ {sub(/format: .*/, "pattern: $(TIME)"); print}' $$crd >$$crd.new && mv $$crd.new $$crd || exit 1; done

# A version before 1.36, which has no MutatingAdmissionPolicies: the operator's webhook does their work.
OLDER := 1.35.4
# The version before the one that most tests run with.
PREVIOUS := 1.36.3
# The versions whose schemas vet knows, ascending. Most tests run with the last one.
KUBERNETES := $(OLDER) $(PREVIOUS) 1.37.2

# Everything is compiled with the same settings, so that the packages that the programs, the tests and the control plane
# share are compiled once. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath $(GOFLAGS)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# The name of the operator's image in a release, without a tag. The image nstpl-sync is next to it.
IMAGE ?= nstpl.dev/nstpl-operator
LDFLAGS := -X nstpl.dev/nstpl/operator/version.release=$(VERSION)

# Only the race detector needs a C compiler.
RACE := $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo -race)
WITH_RACE := $(if $(RACE),CGO_ENABLED=1)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kubectl-nstpl, bin/nstpl-operator and bin/nstpl-sync
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: generate
generate: ## Generate CRDs, JSON schemas, schemas of Kubernetes, deepcopy functions, admission policies, the reference of kinds and commands, samples for Argo CD and Flux
	$(CONTROLLER_GEN) object paths=./operator/api/... crd:crdVersions=v1 output:crd:dir=manifests/crd
	$(call BOUND_VALUES,manifests/crd)
	go run ./manifests/admission/generate manifests/admission
	go run ./manifests/static/generate manifests/static
	go run ./test/openapi/generate operator/engine/schema/kubernetes $(KUBERNETES)
	$(KINDS) --output-path=docs/kinds.md
	go run ./plugin/reference >docs/commands.md
	go run ./cmd/kubectl-nstpl schema >manifests/schemas/nstpl.json
	for engine in argocd flux; do $(HYDRATE) --for=$$engine --output-directory=manifests/gitops/$$engine || exit 1; done
	$(SUITE) marks -update
	go run ./test/house -update

# Runs the tests of a run, such as quick: test/suite explains them. Tests run programs that go test does not track as
# inputs, so only unit tests are cached.
SUITE := go run ./test/suite

# The packages whose tests start control planes have targets of their own.
UNIT := $$(go list ./... | grep -v -e /test/cli -e /test/demo -e /test/integration -e /test/sync -e /test/controlplane \
	-e /test/node)

.PHONY: test
test: ## Run what finds most mistakes soonest, with one version of Kubernetes; needs neither root nor a node
	@$(SUITE) stages build+download control-plane vet+language+verify unit cli+demo+integration cluster-down

.PHONY: test-all
test-all: ## Run everything that make test leaves out: lint, race, versions, sync, helm, thorough tests, browser, e2e
	@$(SUITE) stages lint+race older+previous+sync thorough+starts+helm+browser+e2e
	$(if $(RACE),,@echo '!!! THE RACE DETECTOR WAS OFF, since it needs a C compiler')

.PHONY: vet
vet: ## Run go vet
	go vet ./...

.PHONY: language
language: ## Report phrases and names to avoid
	go run ./test/language

.PHONY: verify
verify: ## Check that generated files, go.mod and go.sum are up to date, without changing them
	$(SUITE) marks
	go run ./test/house
	go mod tidy -diff
	cd test/helm && go mod tidy -diff
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && mkdir "$$tmp/admission" && \
	$(CONTROLLER_GEN) object paths=./operator/api/v1alpha1 crd:crdVersions=v1 \
		output:crd:dir="$$tmp/manifests" output:object:dir="$$tmp/v1alpha1" && \
	$(call BOUND_VALUES,"$$tmp"/manifests) && \
	diff -u operator/api/v1alpha1/zz_generated.deepcopy.go "$$tmp/v1alpha1/zz_generated.deepcopy.go" && \
	(for crd in "$$tmp"/manifests/*; do diff -u "manifests/crd/$${crd##*/}" "$$crd" || exit 1; done) && \
	go run ./manifests/admission/generate "$$tmp/admission" && \
	(for policy in "$$tmp"/admission/*; do diff -u "manifests/admission/$${policy##*/}" "$$policy" || exit 1; done) && \
	go run ./manifests/static/generate "$$tmp/static" && \
	(cd "$$tmp/static" && for file in */nstpl.yaml; do diff -u "$(CURDIR)/manifests/static/$$file" "$$file" || exit 1; done) && \
	$(KINDS) --output-path="$$tmp/kinds.md" && diff -u docs/kinds.md "$$tmp/kinds.md" && \
	go run ./plugin/reference >"$$tmp/commands.md" && diff -u docs/commands.md "$$tmp/commands.md" && \
	go run ./cmd/kubectl-nstpl schema >"$$tmp/nstpl.json" && diff -u manifests/schemas/nstpl.json "$$tmp/nstpl.json" && \
	(for engine in argocd flux; do \
		$(HYDRATE) --for=$$engine --output-directory="$$tmp/gitops/$$engine" >/dev/null || exit 1; done) && \
	diff -ru manifests/gitops "$$tmp/gitops" || \
	{ echo 'generated files are stale: run make generate'; exit 1; }

.PHONY: lint
lint: ## Run golangci-lint (the first run compiles it)
	$(GOLANGCI_LINT) run
	cd test/helm && $(GOLANGCI_LINT) run

.PHONY: fmt
fmt: ## Format the Go files and sort their imports
	$(GOLANGCI_LINT) fmt

.PHONY: unit
unit: control-plane ## Run the unit tests
	$(SUITE) test quick -timeout=10m $(UNIT)

.PHONY: race
race: control-plane ## Run the unit tests of concurrent packages with the race detector, where there is a C compiler
	$(if $(RACE),$(WITH_RACE) $(SUITE) test race $(RACE) -timeout=20m $(UNIT),@echo 'skipped: no C compiler')

.PHONY: cli
cli: control-plane ## Run the tests of kubectl nstpl, and of the manuals
	$(SUITE) test quick -count=1 -timeout=40m ./test/cli/... ./test/demo

.PHONY: integration
integration: control-plane ## Run the operator's tests on a real control plane
	$(SUITE) test quick -count=1 -timeout=40m -parallel=4 ./test/integration

# The race detector more than doubles the operator's CPU time. So it runs over nstpl-sync, and over the tests with the
# older version of Kubernetes, and not over all tests.
.PHONY: sync
sync: control-plane ## Run the tests of nstpl-sync, with the race detector
	$(WITH_RACE) $(SUITE) test quick -count=1 -timeout=30m $(RACE) ./test/sync

.PHONY: older
older: ## Run the tests that are marked for it with the oldest version of Kubernetes
	@K8S_VERSION=$(OLDER) go run ./test/controlplane/cluster build
	$(WITH_RACE) $(SUITE) test $(OLDER) -count=1 -timeout=40m $(RACE) ./test/integration

.PHONY: previous
previous: ## Run the tests that are marked for it with the previous version of Kubernetes
	@K8S_VERSION=$(PREVIOUS) go run ./test/controlplane/cluster build
	$(SUITE) test $(PREVIOUS) -count=1 -timeout=40m ./test/integration

.PHONY: helm
helm: control-plane ## Run the tests of the Helm chart
	$(SUITE) test quick -C=test/helm -count=1 -timeout=10m ./...

# The packages that take longest begin. The time limit is for the release that krew/release compiles for all platforms, at
# first without anything in the cache.
.PHONY: thorough
thorough: control-plane ## Run the tests that take long or need a control plane of their own: a release, faults, restarts, escalations, scale
	$(SUITE) test thorough -count=1 -timeout=40m -parallel=4 ./test/integration ./test/faults ./test/scale \
		./test/cli ./test/demo ./...

.PHONY: starts
starts: control-plane ## Run the tests of how the tests' control plane starts and stops
	$(SUITE) test quick -count=1 -timeout=20m ./test/controlplane/...

.PHONY: browser
browser: ## Run the tests of pages; needs Chromium or Chrome
	$(SUITE) test browser -count=1 -timeout=10m ./plugin/internal/report ./test/browser

# Installs a release and upgrades it to this version. UPGRADE_FROM is the commit of the earlier release; without it, both are
# built from this version.
.PHONY: e2e
e2e: control-plane ## Install, use, upgrade and uninstall a release on a real node; needs root and containerd
	$(SUITE) test quick -count=1 -timeout=10m ./test/node
	$(SUITE) test node -count=1 -timeout=25m ./test/node ./test/e2e

# Not part of make test, since it needs a database on the internet.
.PHONY: vuln
vuln: ## Look for known vulnerabilities with govulncheck
	$(GOVULNCHECK) ./...

# Compiled before the tests start, so that no test waits for it.
.PHONY: control-plane
control-plane:
	@go run ./test/controlplane/cluster build

# The control plane is compiled after the project, with which it shares a third of its packages.
.PHONY: download
download: ## Download the modules that the control plane is compiled from
	@cd test/cluster && go list -deps ./controlplane ./kubectl >/dev/null

.PHONY: bench
bench: build ## Measure the operator, compared with a plain client that writes the same objects; DOCS=1 updates the manuals
	go run ./test/load $(if $(DOCS),-docs)

# SIZES are numbers of namespaces, such as 100,300.
.PHONY: bench-scale
bench-scale: build control-plane ## Measure a cluster that grows to 10,000 namespaces and templates, or to SIZES=100,300
	go run ./test/scale $(if $(SIZES),-sizes='$(SIZES)')

# make thorough includes a short run.
FAULTS_FOR ?= 30m
.PHONY: faults
faults: control-plane ## Inject crashes, delays and lost responses for FAULTS_FOR=30m, and check that the final state is correct
	go run ./test/faults -for $(FAULTS_FOR)

.PHONY: demo
demo: build ## Run the README's commands on a new control plane, and leave it running
	@go run ./test/controlplane/cluster down
	@go run ./test/controlplane/cluster up >/dev/null
	@go run ./test/demo

.PHONY: cluster-up
cluster-up: ## Start a real control plane in .cluster; K8S_VERSION selects another version
	@go run ./test/controlplane/cluster up

.PHONY: cluster-down
cluster-down: ## Stop the control plane in .cluster and delete its data
	@go run ./test/controlplane/cluster down

.PHONY: release
release: ## Build VERSION=v1.2.3 in dist/: archives, images, manifests, SBOMs, checksums; and krew/nstpl.yaml
	go run ./krew/release -version='$(VERSION)' -image='$(IMAGE)' $(if $(BASE_URL),-base-url='$(BASE_URL)')
