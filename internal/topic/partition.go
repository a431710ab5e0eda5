package topic

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// This file divides parts, which are small clusters of documents, among K topics. It maximizes the
// log-likelihood of the words when each topic has the word frequencies of its parts,
//
//	Σ_k (Σ_v n_kv log n_kv − n_k log n_k),   n_k = Σ_v n_kv
//
// with n_kv the count of word v in the parts of topic k. Moving a single part seldom helps if its
// neighbors stay, so the search first divides about twice K groups of parts, which it starts from
// a join of the closest parts and from random divisions, and moves single parts at the end.
// starter calls it.

const (
	partRestarts = 5  // random divisions that the search starts from
	partSplits   = 20 // most topics that the search dissolves
	partRounds   = 10 // most rounds of moves
	// The search distinguishes at most partWords words. With many topics it distinguishes fewer, to
	// keep a round of moves below partWork counts, but at least partFewest.
	partWords, partFewest, partWork = 1000, 100, 1e6
	partLeast                       = 1e-9 // least gain of a move, as a fraction of the likelihood that it changes
)

// partition divides parts among topics. It keeps every gain that it computes until the topic
// changes, because a move changes only two topics.
type partition struct {
	parts []Doc // words and counts of each part
	size  []float64
	of    []int       // topic of each part, −1 before the first move
	count [][]float64 // n_kv
	logs  [][]float64 // n_kv log n_kv
	total []float64   // n_k
	// changes counts the changes of each topic, from 1. gains[i][k] is the gain of part i in topic
	// k when the topic had changed after[i][k] times, and after[i][k] is 0 before it is computed.
	changes []int
	gains   [][]float64
	after   [][]int
}

// newPartition returns a partition of parts over the given number of terms, without any part in
// a topic.
func newPartition(parts []Doc, topics, terms int) *partition {
	p := &partition{
		parts: parts, count: dense.NewRows(topics, terms), logs: dense.NewRows(topics, terms),
		total: make([]float64, topics), gains: dense.NewRows(len(parts), topics),
	}
	for range topics {
		p.changes = append(p.changes, 1)
	}
	for _, d := range parts {
		p.size, p.of = append(p.size, d.Tokens()), append(p.of, -1)
		p.after = append(p.after, make([]int, topics))
	}
	return p
}

// xlogx returns x log x, and 0 for 0.
func xlogx(x float64) float64 {
	if i := int(x); i >= 0 && i < len(smallLogs) && float64(i) == x {
		return smallLogs[i]
	}
	return x * math.Log(x)
}

// smallLogs holds x log x of small integers, because most counts are small integers.
var smallLogs = func() (t [1024]float64) {
	for i := 2; i < len(t); i++ {
		t[i] = float64(i) * math.Log(float64(i))
	}
	return t
}()

// move puts part i into topic k.
func (p *partition) move(i, k int) {
	if from := p.of[i]; from >= 0 {
		p.change(i, from, -1)
	}
	p.change(i, k, 1)
	p.of[i] = k
}

// change adds the words of part i to topic k, or takes them out if sign is −1.
func (p *partition) change(i, k int, sign float64) {
	p.changes[k]++
	p.total[k] = max(0, p.total[k]+sign*p.size[i])
	count, logs := p.count[k], p.logs[k]
	for j, v := range p.parts[i].Words {
		count[v] = max(0, count[v]+sign*p.parts[i].Counts[j])
		logs[v] = xlogx(count[v])
	}
}

// gain returns how much the likelihood is higher with part i in topic k than with part i in no
// topic.
func (p *partition) gain(i, k int) float64 {
	if p.after[i][k] == p.changes[k] {
		return p.gains[i][k]
	}
	count, logs, total, sign := p.count[k], p.logs[k], p.total[k], 1.0
	if p.of[i] == k {
		sign = -1
	}
	g := xlogx(total) - xlogx(max(0, total+sign*p.size[i]))
	for j, v := range p.parts[i].Words {
		g += xlogx(max(0, count[v]+sign*p.parts[i].Counts[j])) - logs[v]
	}
	p.gains[i][k], p.after[i][k] = sign*g, p.changes[k]
	return sign * g
}

// best returns the topic in which part i has the largest gain, and that gain. The topic is not the
// excluded one, and of equals it is the first.
func (p *partition) best(i, excluded int) (topic int, gain float64) {
	gain = math.Inf(-1)
	for k := range p.count {
		if k == excluded {
			continue
		}
		if g := p.gain(i, k); g > gain {
			topic, gain = k, g
		}
	}
	return topic, gain
}

// likelihood returns the log-likelihood of the words.
func (p *partition) likelihood() (l float64) {
	for k, logs := range p.logs {
		for _, x := range logs {
			l += x
		}
		l -= xlogx(p.total[k])
	}
	return l
}

// set puts each part into the given topic.
func (p *partition) set(of []int) {
	for i, k := range of {
		if k != p.of[i] {
			p.move(i, k)
		}
	}
}

// exchange moves each part to its best topic, in rounds, until no move gains.
func (p *partition) exchange() {
	for range partRounds {
		moved := false
		for i, from := range p.of {
			stay := p.gain(i, from)
			to, gain := p.best(i, from)
			if gain > stay+partLeast*math.Abs(stay) {
				p.move(i, to)
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

// dissolve moves the parts of topic k to the best other topics, and gives topic k the one part
// that gains most from a topic of its own.
func (p *partition) dissolve(k int) {
	for i, from := range p.of {
		if from == k {
			to, _ := p.best(i, k)
			p.move(i, to)
		}
	}
	alone, most := 0, math.Inf(-1)
	for i, from := range p.of {
		if g := p.gain(i, k) - p.gain(i, from); g > most {
			alone, most = i, g
		}
	}
	p.move(alone, k)
}

// search returns the topic of each part in the best division that it finds.
func search(parts []Doc, topics, terms int, rng *rand.Rand) []int {
	words := int(max(partFewest, min(partWords, partWork/float64(2*topics*topics))))
	parts, terms = fewerWords(parts, terms, words)
	group, topic := join(parts, terms, 2*topics, topics)
	groups := newPartition(unite(parts, group), topics, terms)
	best, most := []int(nil), math.Inf(-1)
	improve := func() bool {
		groups.exchange()
		l := groups.likelihood()
		better := best == nil || l > most+partLeast*math.Abs(most)
		if better {
			best, most = slices.Clone(groups.of), l
		}
		return better
	}
	start := make([]int, len(groups.parts))
	for i, g := range group {
		start[g] = topic[i]
	}
	groups.set(start)
	improve()
	for range partRestarts {
		for g := range start {
			start[g] = rng.IntN(topics)
		}
		groups.set(start)
		improve()
	}
	for t, failed := 0, 0; topics > 1 && t < partSplits && failed < topics; t++ {
		groups.set(best)
		groups.dissolve(t % topics)
		if failed++; improve() {
			failed = 0
		}
	}
	p := newPartition(parts, topics, terms)
	for i, g := range group {
		p.move(i, best[g])
	}
	p.exchange()
	return p.of
}

// fewerWords returns parts over at most the given number of terms. It keeps the words that tell
// the parts best apart, by Σ_i n_iv log(n_iv n / (n_i n_v)) over the parts i, and counts all others
// as one word.
func fewerWords(parts []Doc, terms, most int) ([]Doc, int) {
	if terms <= most {
		return parts, terms
	}
	tells, sum, total := make([]float64, terms), make([]float64, terms), Tokens(parts)
	for _, d := range parts {
		addDoc(sum, d)
	}
	for _, d := range parts {
		size := d.Tokens()
		for j, v := range d.Words {
			tells[v] += d.Counts[j] * math.Log(d.Counts[j]/size*(total/sum[v]))
		}
	}
	order := make([]int, terms)
	for v := range order {
		order[v] = v
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(tells[b], tells[a]), a-b) })
	kept := order[:most-1]
	slices.Sort(kept)
	index := make([]int, terms)
	for i := range index {
		index[i] = -1
	}
	for i, v := range kept {
		index[v] = i
	}
	out := make([]Doc, len(parts))
	for i, d := range parts {
		var rest float64
		for j, v := range d.Words {
			if at := index[v]; at >= 0 {
				out[i].Words = append(out[i].Words, at)
				out[i].Counts = append(out[i].Counts, d.Counts[j])
			} else {
				rest += d.Counts[j]
			}
		}
		if rest > 0 {
			out[i].Words = append(out[i].Words, most-1)
			out[i].Counts = append(out[i].Counts, rest)
		}
	}
	return out, most
}

// join joins the two clusters that lose least likelihood by it, again and again, from single parts
// on. It returns the cluster of each part when at most many clusters were left, and when
// at most few were left.
func join(parts []Doc, terms, many, few int) (at, end []int) {
	n := len(parts)
	to, live := make([]int, n), make([]int, n)
	for i := range n {
		to[i], live[i] = i, i
	}
	p := newPartition(slices.Clone(parts), n, terms) // a cluster is a part, alone in its topic
	p.set(live)
	for {
		if at == nil && len(live) <= many {
			at = numbered(to, live)
		}
		if len(live) <= few {
			return at, numbered(to, live)
		}
		least, a, b := math.Inf(1), live[0], 1
		for x, i := range live {
			for _, j := range live[:x] {
				if l := p.gain(i, i) - p.gain(i, j); l < least {
					least, a, b = l, j, x
				}
			}
		}
		gone := live[b]
		live = slices.Delete(live, b, b+1)
		p.unite(a, gone)
		for i, c := range to {
			if c == gone {
				to[i] = a
			}
		}
	}
}

// unite adds the words of part j to part i, which is alone in its topic, and leaves part j without
// a topic of its own.
func (p *partition) unite(i, j int) {
	p.move(j, p.of[i])
	p.parts[i] = sumDocs(p.parts[i], p.parts[j])
	p.size[i] += p.size[j]
	clear(p.after[i])
}

// numbered returns the place in live of each element of to.
func numbered(to, live []int) []int {
	out := make([]int, len(to))
	for i, c := range to {
		out[i] = slices.Index(live, c)
	}
	return out
}

// sumDocs returns the document with the words of a and b.
func sumDocs(a, b Doc) (sum Doc) {
	for len(a.Words) > 0 || len(b.Words) > 0 {
		var c float64
		v := math.MaxInt
		for _, d := range []Doc{a, b} {
			if len(d.Words) > 0 {
				v = min(v, d.Words[0])
			}
		}
		for _, d := range []*Doc{&a, &b} {
			if len(d.Words) > 0 && d.Words[0] == v {
				c += d.Counts[0]
				*d = Doc{d.Words[1:], d.Counts[1:]}
			}
		}
		sum.Words, sum.Counts = append(sum.Words, v), append(sum.Counts, c)
	}
	return sum
}

// unite returns the words of each group of parts.
func unite(parts []Doc, group []int) (out []Doc) {
	out = make([]Doc, slices.Max(group)+1)
	for i, g := range group {
		out[g] = sumDocs(out[g], parts[i])
	}
	return out
}
