package controlplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// await calls a function repeatedly until it returns no error, a program has ended or ctx is done.
func (c *Cluster) await(ctx context.Context, question func(context.Context, kubernetes.Interface) error) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer := question(ctx, client)
		if answer == nil {
			return nil
		}
		if err := c.crash(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			last := c.processes[len(c.processes)-1]
			return fmt.Errorf("%w: %w; the end of %s's log:\n%s", context.Cause(ctx), answer, last.Name, last.Tail())
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("the API server isn't ready: %w", err)
	}
	return nil
}

// bootstrapped returns an error until the controllers have set up a new cluster.
func bootstrapped(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
		metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the default namespace isn't populated: %w", err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt",
		metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the default namespace isn't populated: %w", err)
	}
	for _, name := range []string{"admin", "edit", "view"} {
		role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("the built-in roles aren't there: %w", err)
		}
		if len(role.Rules) == 0 {
			return fmt.Errorf("the built-in role %s isn't aggregated", name)
		}
	}
	return nil
}
