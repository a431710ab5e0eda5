package data

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// An Answer is the prediction for a row, with its interval.
type Answer struct {
	// Label is the label whose probability is Mean. For classes and ordered levels it is the most
	// probable label. It is "" for numbers.
	Label string
	// Probs holds the probabilities of Predictor.Classes, or nil for two labels and for numbers.
	Probs []float64
	// Mean is the probability of Label or of a success, or the mean of the outcome. The mean is in
	// units of the outcome, even if the model is of its logarithm or square root.
	Mean float64
	// MeanLo and MeanHi are the ends of the credible interval of Mean. Its probability is 90%, or
	// the level that the caller sets.
	MeanLo, MeanHi float64
	// Lo and Hi are the ends of the prediction interval of a new outcome if the outcome is a
	// number. Otherwise they equal MeanLo and MeanHi.
	Lo, Hi float64
	// Notes lists the values of the row that are imputed, new or outside the range of the training
	// data.
	Notes []string
	// Row is the number of the row in its table, from 0, and Line is its line in the file, from 1.
	// Both are 0 if the row did not come from a table.
	Row, Line int
	// Outcome is the outcome of the row as in Data.Y, or the share of successes in trials. LogProb
	// is the log of its predictive probability or density, in nats. For trials it refers to a
	// single trial, and for BetaBinomial to the number of successes. Both are NaN if the row has no
	// outcome, or an outcome that cannot be used; Notes then has the reason.
	Outcome, LogProb float64

	latent latent
	trials float64 // number of trials, or 0 if the outcome is not a share of successes
	// precision is relative to the mean of the training rows, and 0 for models without precisions.
	precision float64
	unread    error // why the outcome cannot be used
}

// noAnswer returns an answer whose numbers are NaN.
func noAnswer() *Answer {
	nan := math.NaN()
	return &Answer{Mean: nan, MeanLo: nan, MeanHi: nan, Lo: nan, Hi: nan, Outcome: nan, LogProb: nan}
}

// latent holds the latent value of a row, which is N(mean, variance), and the likelihood.
type latent struct {
	lik            pgsvi.Likelihood
	mean, variance float64
	scores         []float64 // for classes: all means, then all variances
}

// String returns the answer as "0.50 (0.11 to 0.89)", or "setosa: 0.93 (0.85 to 0.98)" for classes,
// followed by the notes. It returns "no answer" for a row with an error.
func (a *Answer) String() string {
	s := fmt.Sprintf("%.3g (%.3g to %.3g)", a.Mean, a.Lo, a.Hi)
	switch {
	case math.IsNaN(a.Mean):
		s = "no answer"
	case a.Probs != nil:
		s = fmt.Sprintf("%s: %.2f (%.2f to %.2f)", a.Label, a.Mean, a.Lo, a.Hi)
	case a.Label != "":
		s = fmt.Sprintf("%.2f (%.2f to %.2f)", a.Mean, a.Lo, a.Hi)
	}
	if len(a.Notes) > 0 {
		s += "  " + strings.Join(a.Notes, "; ")
	}
	return s
}

// Survival returns the probability that a duration is longer than t, so that the event has not
// happened by then (survival function). It returns NaN if t is not above 0, or if the likelihood
// does not support censored durations. Weibull and LogNormal support them.
func (a *Answer) Survival(t float64) float64 {
	known, ok := a.latent.lik.(pgsvi.Factual)
	if !ok || !known.Facts().Censored || !(t > 0) {
		return math.NaN()
	}
	at := pgsvi.NewPrediction(a.latent.lik, []float64{a.latent.mean}, []float64{a.latent.variance})
	return math.Exp(at.LogProb(nil, []float64{-t})[0])
}

// square turns the answer for the square root of the outcome into the answer for the outcome.
// variance is the predictive variance of the root, and noise is its variance given its mean.
func (a *Answer) square(variance, noise float64) {
	a.Mean = a.Mean*a.Mean + variance
	for _, end := range []*float64{&a.Lo, &a.Hi, &a.MeanLo, &a.MeanHi} {
		*end = max(*end, 0) * max(*end, 0)
	}
	a.MeanLo += noise
	a.MeanHi += noise
}

// answerJSON is the JSON form of an Answer. It omits unknown numbers.
type answerJSON struct {
	Label   string    `json:"label,omitempty"`
	Probs   []float64 `json:"probs,omitempty"`
	Mean    *float64  `json:"mean,omitempty"`
	MeanLo  *float64  `json:"mean_lo,omitempty"`
	MeanHi  *float64  `json:"mean_hi,omitempty"`
	Lo      *float64  `json:"lo,omitempty"`
	Hi      *float64  `json:"hi,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
	Row     int       `json:"row"`
	Line    int       `json:"line,omitempty"`
	Outcome *float64  `json:"outcome,omitempty"`
	LogProb *float64  `json:"log_prob,omitempty"`
}

// MarshalJSON returns the answer as an object such as {"label": "yes", "mean": 0.7, "mean_lo": 0.5,
// "mean_hi": 0.8, "lo": 0.5, "hi": 0.8, "row": 0}. It omits numbers that are infinite or unknown,
// such as the outcome of a new row.
func (a *Answer) MarshalJSON() ([]byte, error) {
	number := func(v float64) *float64 {
		if math.IsNaN(v - v) {
			return nil
		}
		return &v
	}
	return json.Marshal(answerJSON{a.Label, a.Probs, number(a.Mean), number(a.MeanLo),
		number(a.MeanHi), number(a.Lo), number(a.Hi), a.Notes, a.Row, a.Line, number(a.Outcome),
		number(a.LogProb)})
}

// UnmarshalJSON reads the output of MarshalJSON. Omitted numbers become NaN.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var s answerJSON
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("pgsvi: reading an answer: %w", err)
	}
	number := func(v *float64) float64 {
		if v == nil {
			return math.NaN()
		}
		return *v
	}
	*a = Answer{Label: s.Label, Probs: s.Probs, Mean: number(s.Mean), MeanLo: number(s.MeanLo),
		MeanHi: number(s.MeanHi), Lo: number(s.Lo), Hi: number(s.Hi), Notes: s.Notes, Row: s.Row,
		Line: s.Line, Outcome: number(s.Outcome), LogProb: number(s.LogProb)}
	return nil
}
