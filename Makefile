.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: cluster-up
cluster-up: ## Start a real control plane in .cluster (K8S_VERSION picks another version)
	@go run ./test/controlplane/cluster up

.PHONY: cluster-down
cluster-down: ## End it and delete its data
	@go run ./test/controlplane/cluster down
