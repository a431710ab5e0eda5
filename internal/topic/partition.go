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

// partition divides parts among topics.
type partition struct {
	parts []Doc // words and counts of each part
	size  []float64
	of    []int       // topic of each part
	count [][]float64 // n_kv
	logs  [][]float64 // n_kv log n_kv
	total []float64   // n_k
}

// newPartition returns a partition of parts over the given number of terms, without any part in
// a topic.
func newPartition(parts []Doc, topics, terms int) *partition {
	p := &partition{
		parts: parts, of: make([]int, len(parts)), count: dense.NewRows(topics, terms),
		logs: dense.NewRows(topics, terms), total: make([]float64, topics),
	}
	for _, d := range parts {
		p.size = append(p.size, d.Tokens())
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

// add puts part i into topic k.
func (p *partition) add(i, k int) {
	p.of[i] = k
	p.total[k] += p.size[i]
	count, logs := p.count[k], p.logs[k]
	for j, v := range p.parts[i].Words {
		count[v] += p.parts[i].Counts[j]
		logs[v] = xlogx(count[v])
	}
}

// remove takes part i out of its topic.
func (p *partition) remove(i int) {
	k := p.of[i]
	p.total[k] = max(0, p.total[k]-p.size[i])
	count, logs := p.count[k], p.logs[k]
	for j, v := range p.parts[i].Words {
		count[v] = max(0, count[v]-p.parts[i].Counts[j])
		logs[v] = xlogx(count[v])
	}
}

// gain returns how much the likelihood would rise if part i, which is in no topic, joined topic k.
func (p *partition) gain(i, k int) float64 {
	g := xlogx(p.total[k]) - xlogx(p.total[k]+p.size[i])
	count, logs := p.count[k], p.logs[k]
	for j, v := range p.parts[i].Words {
		g += xlogx(count[v]+p.parts[i].Counts[j]) - logs[v]
	}
	return g
}

// best returns the topic that part i, which is in no topic, gains most from, and that gain. The
// topic is not the excluded one, and of equals it is the first.
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
	for k := range p.count {
		clear(p.count[k])
		clear(p.logs[k])
		p.total[k] = 0
	}
	for i, k := range of {
		p.add(i, k)
	}
}

// exchange moves each part to its best topic, in rounds, until no move gains.
func (p *partition) exchange() {
	for range partRounds {
		moved := false
		for i, from := range p.of {
			p.remove(i)
			stay := p.gain(i, from)
			to, gain := p.best(i, -1)
			if gain <= stay+partLeast*math.Abs(stay) {
				to = from
			}
			p.add(i, to)
			moved = moved || to != from
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
			p.remove(i)
			to, _ := p.best(i, k)
			p.add(i, to)
		}
	}
	alone, most := 0, math.Inf(-1)
	for i, from := range p.of {
		p.remove(i)
		if g := p.gain(i, k) - p.gain(i, from); g > most {
			alone, most = i, g
		}
		p.add(i, from)
	}
	p.remove(alone)
	p.add(alone, k)
}

// search returns the topic of each part in the best division that it finds.
func search(parts []Doc, topics, terms int, rng *rand.Rand) []int {
	words := int(max(partFewest, min(partWords, partWork/float64(2*topics*topics))))
	parts, terms = fewerWords(parts, terms, words)
	group, topic := join(parts, 2*topics, topics)
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
		p.add(i, best[g])
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
func join(parts []Doc, many, few int) (at, end []int) {
	n := len(parts)
	sum, size, to := slices.Clone(parts), make([]float64, n), make([]int, n)
	live, loss := make([]int, n), dense.NewRows(n, n)
	for i := range n {
		to[i], live[i], size[i] = i, i, parts[i].Tokens()
		for j := range i {
			loss[i][j] = joinLoss(sum[i], sum[j], size[i], size[j])
		}
	}
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
				if loss[i][j] < least {
					least, a, b = loss[i][j], j, x
				}
			}
		}
		gone := live[b]
		live = slices.Delete(live, b, b+1)
		sum[a], size[a] = sumDocs(sum[a], sum[gone]), size[a]+size[gone]
		for i, c := range to {
			if c == gone {
				to[i] = a
			}
		}
		for _, j := range live {
			if j != a {
				loss[max(a, j)][min(a, j)] = joinLoss(sum[a], sum[j], size[a], size[j])
			}
		}
	}
}

// numbered returns the place in live of each element of to.
func numbered(to, live []int) []int {
	out := make([]int, len(to))
	for i, c := range to {
		out[i] = slices.Index(live, c)
	}
	return out
}

// joinLoss returns the likelihood that is lost if clusters with the words a and b, of the given
// sizes, become one.
func joinLoss(a, b Doc, sizeA, sizeB float64) float64 {
	loss := xlogx(sizeA+sizeB) - xlogx(sizeA) - xlogx(sizeB)
	i, j := 0, 0
	for i < len(a.Words) && j < len(b.Words) {
		switch v, w := a.Words[i], b.Words[j]; {
		case v < w:
			i++
		case v > w:
			j++
		default:
			x, y := a.Counts[i], b.Counts[j]
			loss -= xlogx(x+y) - xlogx(x) - xlogx(y)
			i, j = i+1, j+1
		}
	}
	return loss
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
