package measure

import "time"

// Alternately calls two functions in turn, as often as count says, and returns how long each of their calls took. What
// slows the machine down for a while slows both down, so that their ratio can be trusted. The calls that warm up, whose
// indices are negative, are not counted.
func Alternately(warmUp, count int, floor, measured func(index int) error) (a, b []time.Duration, err error) {
	took := [2][]time.Duration{}
	for i := -warmUp; i < count; i++ {
		for turn := range took {
			side := (turn + i + warmUp) % len(took) // neither always follows the other
			start := time.Now()
			if err := [2]func(int) error{floor, measured}[side](i); err != nil {
				return nil, nil, err
			}
			if i >= 0 {
				took[side] = append(took[side], time.Since(start))
			}
		}
	}
	return took[0], took[1], nil
}
