package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// settler waits until the operator has nothing left to do in namespaces.
type settler struct {
	client client.Client
	// id is the value of testLabel that the namespaces have.
	id   string
	pass int
}

// settledName is the name of a ConfigMap that the settler's own template declares.
const settledName = "settled"

// settle waits until the operator has handled all earlier changes in the namespaces. It changes the settler's template
// three times, and waits for its ConfigMap each time: the operator observes templates one after the other, a second
// pass through a namespace begins after the first has ended, and the third covers work that was left for a later pass.
func (s *settler) settle(ctx context.Context, namespaces ...string) error {
	for range 3 {
		s.pass++
		value := fmt.Sprint(s.pass)
		if err := s.writeTemplate(ctx, value); err != nil {
			return fmt.Errorf("declare ConfigMap %s: %w", settledName, err)
		}
		for _, namespace := range namespaces {
			if err := s.waitForValue(ctx, namespace, value); err != nil {
				return fmt.Errorf("wait until the operator has changed ConfigMap %s in namespace %s: %w", settledName,
					namespace, err)
			}
		}
	}
	return nil
}

func (s *settler) writeTemplate(ctx context.Context, value string) error {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": settledName},
		"data": map[string]any{"pass": value},
	})
	if err != nil {
		return err
	}
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: s.id + "-settled"},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: selectLabel(testLabel, s.id), Templates: []runtime.RawExtension{{Raw: raw}},
		},
	}
	if err := s.client.Create(ctx, template.DeepCopy()); !apierrors.IsAlreadyExists(err) {
		return err
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"templates": template.Spec.Templates}})
	if err != nil {
		return err
	}
	return s.client.Patch(ctx, template, client.RawPatch("application/merge-patch+json", body))
}

func (s *settler) waitForValue(ctx context.Context, namespace, value string) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			found := &corev1.ConfigMap{}
			err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: settledName}, found)
			return err == nil && found.Data["pass"] == value, client.IgnoreNotFound(err)
		})
}
