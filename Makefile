.DEFAULT_GOAL := help

CONTROLLER_GEN := go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
CRD_REF_DOCS := go run github.com/elastic/crd-ref-docs@v0.3.0
KINDS := $(CRD_REF_DOCS) --source-path=operator/api/v1alpha1 --config=operator/api/reference.yaml --renderer=markdown --log-level=ERROR
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# A version before 1.36, where the operator's webhook does what MutatingAdmissionPolicies do.
OLDER := 1.35.4

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# The name of the operator's image in what is released, without a tag.
IMAGE ?= nstpl.dev/nstpl-operator
LDFLAGS := -X nstpl.dev/nstpl/operator/version.release=$(VERSION)

# The race detector needs a C compiler, and nothing else here does.
RACE := $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo -race)

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kubectl-nstpl and bin/nstpl-operator
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: generate
generate: ## Generate CRDs, deepcopy functions, admission policies, and the reference of kinds and commands
	$(CONTROLLER_GEN) object paths=./operator/api/... crd:crdVersions=v1 output:crd:dir=manifests/crd
	go run ./manifests/admission/generate manifests/admission
	$(KINDS) --output-path=docs/kinds.md
	go run ./plugin/reference >docs/commands.md

.PHONY: test
test: ## Run everything that must pass: verify, lint, unit, cli, integration, e2e
	@test/run.sh verify lint unit cli integration e2e
	@go run ./test/node/lacks
	$(if $(RACE),,@echo 'the race detector was off: it needs a C compiler')

.PHONY: verify
verify: ## Check that generated files, go.mod and go.sum are fresh; changes nothing
	go mod tidy -diff
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && mkdir "$$tmp/admission" && \
	$(CONTROLLER_GEN) object paths=./operator/api/v1alpha1 crd:crdVersions=v1 \
		output:crd:dir="$$tmp/manifests" output:object:dir="$$tmp/v1alpha1" && \
	diff -u operator/api/v1alpha1/zz_generated.deepcopy.go "$$tmp/v1alpha1/zz_generated.deepcopy.go" && \
	(for crd in "$$tmp"/manifests/*; do diff -u "manifests/crd/$${crd##*/}" "$$crd" || exit 1; done) && \
	go run ./manifests/admission/generate "$$tmp/admission" && \
	(for policy in "$$tmp"/admission/*; do diff -u "manifests/admission/$${policy##*/}" "$$policy" || exit 1; done) && \
	$(KINDS) --output-path="$$tmp/kinds.md" && diff -u docs/kinds.md "$$tmp/kinds.md" && \
	go run ./plugin/reference >"$$tmp/commands.md" && diff -u docs/commands.md "$$tmp/commands.md" || \
	{ echo 'generated files are stale: run make generate'; exit 1; }

.PHONY: lint
lint: ## Run golangci-lint (its first run compiles it)
	$(GOLANGCI_LINT) run

.PHONY: fmt
fmt: ## Format the Go files and sort their imports
	$(GOLANGCI_LINT) fmt

.PHONY: unit
unit: control-plane ## Run the unit tests, with the race detector where there is a C compiler
	go test $(RACE) $$(go list ./... | grep -v /test/) ./test/load

# They run programs that they build, of which go test knows nothing: -count=1.
.PHONY: cli
cli: control-plane ## Run the tests of the command line
	go test -count=1 -timeout 20m ./test/cli/...

.PHONY: integration
integration: control-plane ## Run the tests on a real control plane
	go test -count=1 -timeout 35m $(RACE) $$(go list ./test/... | grep -v -e /test/cli -e /test/load -e /test/node -e /test/e2e)
	K8S_VERSION=$(OLDER) go test -count=1 -timeout 20m $(RACE) ./test/integration -run '^Test(Admission|Hold|Initializ|CreatorMay|UnknownCreator|AttributesOfPods|AttributesAreFound|PolicySpaceIsInherited|PolicySpaceQuota$$|Binding|Role|Revoked|DriftIsSeen|DriftCannot|TreeLeaves|SCCRecord)'

# It installs one release, and upgrades it to another: the earlier is UPGRADE_FROM=commit, or the same.
.PHONY: e2e
e2e: control-plane ## Run the whole product on a real node, where the machine can: as root, with containerd
	go test -count=1 -v -timeout 25m ./test/node ./test/e2e

# It asks a database on the internet, so it is no part of make test.
.PHONY: vuln
vuln: ## Look for known vulnerabilities in what the code calls, with govulncheck
	$(GOVULNCHECK) ./...

# Compiled before the tests start, so that no test waits for it.
.PHONY: control-plane
control-plane:
	@go run ./test/controlplane/cluster build
	@K8S_VERSION=$(OLDER) go run ./test/controlplane/cluster build

.PHONY: bench
bench: build ## Measure the operator against a bare client that writes the same objects
	go run ./test/load

# Its short sweep is a part of make integration.
FAULTS_FOR ?= 30m
.PHONY: faults
faults: control-plane ## Crash, delay and lose what the operator does for FAULTS_FOR=30m, and look whether all comes out right
	go run ./test/faults -for $(FAULTS_FOR)

.PHONY: demo
demo: build ## Play the README's commands on a new control plane, and leave it up
	@go run ./test/controlplane/cluster down
	@go run ./test/controlplane/cluster up >/dev/null
	@go run ./test/demo

.PHONY: cluster-up
cluster-up: ## Start a real control plane in .cluster (K8S_VERSION picks another version)
	@go run ./test/controlplane/cluster up

.PHONY: cluster-down
cluster-down: ## End it and delete its data
	@go run ./test/controlplane/cluster down

.PHONY: release
release: ## Build dist/ and krew/nstpl.yaml for VERSION=v1.2.3: archives, image, manifests to install, SBOMs, checksums
	go run ./krew/release -version='$(VERSION)' -image='$(IMAGE)'
	@$(MAKE) --no-print-directory krew-check

.PHONY: krew-check
krew-check: ## Hold krew/nstpl.yaml and the archives in dist/ against krew's rules
	go run ./krew/check krew/nstpl.yaml dist
