/*
 * The protocol of activities/effects.py for one operation id, for an exhaustive search by spin.
 *
 * Attempts overlap as they like, and each may be killed between any two steps. A reset is one more attempt beside those
 * that still live: of the same request, or (once) of another one under the same id. Time is a process that lets any
 * claim's deadline pass at any moment; an attempt acts only before its own, and whoever waits out a lease waits for it.
 *
 * KIND: the service honours keys (0), can be looked up (1), or does neither (2).
 * M_...: the mutations; each must give a counterexample for the kind that tests/model/test_model.py names.
 */
#ifndef KIND
#define KIND 0
#endif
#define KEYS 0
#define LOOK 1
#define NOTHING 2

#define STARTS 3     /* attempts of the request that the server starts, reviews included */
#define CLAIMS 6
#define WORDS 1      /* how often a person may say "it did not happen, run it" */

mtype = { NONE, COMMITTED, NOT_EXECUTED, SKIPPED, HAPPENED, NOT_HAPPENED, GIVE_UP };

bool prepared;              /* prepared.json: which request it holds */
byte request;
byte last;                  /* the newest claim */
bool over[CLAIMS];          /* the deadline of a claim has passed */
mtype outcome = NONE;       /* outcome.json: put if absent */
bool review;                /* a person is asked */
mtype word = NONE;          /* what the person said, and whether a claim has used it up */
bool used;
bool refused;               /* the newest claim is the end of all claims: nothing happened, nobody may act */
byte words, about;          /* how many were said; the newest claim when it was */
byte effects[3];            /* in the world, by request */
byte started, running;
bool other;                 /* the other request has been made */
bool closed;                /* a person has ended it as one that a reset left, or could not */

#define ALL_OVER(k)  (over[1] && (k < 2 || over[2]) && (k < 3 || over[3]) && (k < 4 || over[4]) && (k < 5 || over[5]))
#define KILLED  if :: skip :: goto gone fi
#define END(state)  atomic { if :: outcome == NONE -> outcome = state :: else fi }

proctype Attempt(byte wanted) {
    byte seen, mine;
    bool told, certain, changed;

    /* The gate: what would run is held against what was decided. */
    if :: changed = false :: changed = true fi;
#ifdef M_EMPTY
    skip;                                   /* an empty fingerprint fits anything */
#else
    if :: changed -> goto gone :: else fi;
#endif
    KILLED;
    atomic {
        if
        :: !prepared -> prepared = true; request = wanted; last = 1; mine = 1
        :: else -> mine = 0
        fi
    }
    KILLED;
    if
    :: mine -> certain = true; goto act
    :: else
    fi;
#ifndef M_FINGERPRINT
    if :: request != wanted -> goto gone :: else fi;      /* taken: nothing is run */
#endif
    if :: outcome != NONE -> goto answered :: else fi;
    if
    :: word == HAPPENED -> END(COMMITTED); goto answered
    :: word == GIVE_UP -> END(SKIPPED); goto answered
    :: else
    fi;
    seen = last;
    if :: refused -> END(NOT_EXECUTED); goto answered :: else fi;
    told = (word == NOT_HAPPENED && !used && about == seen);   /* a word about later claims is none */
#ifndef M_LEASE
    if
    :: KIND == KEYS && !told
    :: else -> (ALL_OVER(seen) || outcome != NONE)
    fi;
#endif
    KILLED;
    atomic {
        if
        :: outcome != NONE -> goto answered
        :: outcome == NONE && last != seen -> goto gone                  /* another attempt took the claim */
        :: outcome == NONE && last == seen && last + 2 >= CLAIMS -> goto gone
        :: else -> last++; mine = last; review = false; used = used || told
        fi
    }
    KILLED;
#ifdef M_NOT_EXECUTED
    certain = true; goto act;
#endif
    if
    :: KIND == LOOK ->
#ifdef M_LOOK
        certain = true; goto act
#else
        if
        :: effects[wanted] > 0 -> END(COMMITTED); goto answered
        :: else -> certain = true; goto act
        fi
#endif
    :: KIND != LOOK && told -> certain = true; goto act
    :: KIND == KEYS && !told -> certain = false; goto act
    :: KIND == NOTHING && !told -> goto ask
    fi;

act:
    KILLED;
#ifdef M_COMMIT_FIRST
    END(COMMITTED);
    KILLED;
#endif
    atomic {
        if
        :: over[mine] -> goto gone                                     /* too late to act on this claim */
        :: !over[mine] ->                                              /* it happens, or the key is known */
            assert(!changed);
#ifdef M_KEY
            effects[wanted]++
#else
            if :: KIND == KEYS && effects[wanted] > 0 :: else -> effects[wanted]++ fi
#endif
        :: !over[mine] && certain -> goto refuse                       /* refused, and surely nothing happened */
        :: !over[mine] && !certain -> goto ask                         /* refused, but an earlier one may have acted */
        :: !over[mine] -> goto broken                                  /* it broke before anything happened */
        fi
    }
    KILLED;
    END(COMMITTED);
    goto answered;

refuse:
    KILLED;
#ifndef M_FENCE
    atomic {
        if
        :: outcome == NONE && last == mine && !refused -> last++; refused = true; review = false
        :: else -> goto gone                                           /* another attempt may be acting */
        fi
    }
    KILLED;
#endif
    END(NOT_EXECUTED);
    goto answered;

broken:
    if
    :: KIND == NOTHING -> goto ask
    :: else -> goto gone                                               /* the server tries again */
    fi;

ask:
    if
    :: KIND == KEYS -> (ALL_OVER(mine) || outcome != NONE)             /* no older attempt may act behind the word */
    :: else
    fi;
    atomic { if :: outcome == NONE && last == mine -> review = true :: else fi }
    goto gone;

answered:
    assert(outcome != COMMITTED || effects[wanted] > 0);               /* what is reported has happened */

gone:
    atomic { running--; }
}

/* The server: another attempt at any time, while the operation has no end and nobody is asked. */
active proctype Server() {
    do
    :: atomic { outcome == NONE && !review && started < STARTS && running < 2 ->
            started++; running++; run Attempt(1) }
    :: atomic { !other && started > 0 && running < 2 -> other = true; running++; run Attempt(2) }
    :: outcome != NONE && running == 0 -> break
    :: review && running == 0 && words >= WORDS && (closed || effects[request] > 0) -> break
                                                                       /* it waits for a person, by name */
    :: atomic { started >= STARTS && running == 0 && outcome == NONE && !review ->
            /* every attempt is spent: effect.doubt */
            if
            :: !prepared -> prepared = true; request = 1; last = 1; outcome = NOT_EXECUTED
            :: prepared && request == 1 && refused -> outcome = NOT_EXECUTED
            :: prepared && request == 1 && !refused && KIND != LOOK -> (ALL_OVER(last)); review = true
            :: prepared && request == 1 && !refused && KIND == LOOK -> (ALL_OVER(last));
                if
                :: effects[1] > 0 -> outcome = COMMITTED
                :: effects[1] == 0 -> refused = true; outcome = NOT_EXECUTED
                fi
            :: else -> break                                           /* the id is the other request's */
            fi }
    od;
    assert(outcome != NONE || review || request == 2);
}

/* A person looks at the world and says what is true. */
active proctype Person() {
end:
    do
    :: atomic { review && words < WORDS && outcome == NONE ->
            words++; review = false; used = false; about = last;
            if
            :: effects[request] > 0 -> word = HAPPENED
            :: effects[request] == 0 -> word = NOT_HAPPENED
            :: effects[request] == 0 -> word = GIVE_UP
            fi;
            if :: started >= STARTS -> started = STARTS - 1 :: else fi  /* the run asks the tool again */
       }
    od
}

/* A reset left it: a person's "it did not happen" is its end, once nobody can act any more, and it is not made again.
 * What is killed on the way is tried again. */
active proctype Left() {
    byte seen;
end:
    atomic { review && outcome == NONE && effects[request] == 0 -> seen = last }
again:
    (ALL_OVER(seen) || outcome != NONE);
    if :: skip :: goto again fi;
    atomic {
        if
        :: outcome == NONE && last == seen && review && !refused -> last++; refused = true; review = false
        :: outcome == NONE && refused
        :: else -> goto gone
        fi
    }
    if :: skip :: goto again fi;
    END(NOT_EXECUTED);
gone:
    closed = true
}

/* A deploy may have shortened a tool's time, so an older claim may have the later deadline. */
#define PASSES(k)  :: atomic { last >= k && !over[k] -> over[k] = true }

active proctype Time() {
end:
    do
    PASSES(1) PASSES(2) PASSES(3) PASSES(4) PASSES(5)
    od
}

active proctype Law() {
end:
    atomic { !(effects[1] + effects[2] <= 1) -> assert(false) }
}

active proctype Truth() {
end:
    atomic { outcome == NOT_EXECUTED && running == 0 && effects[1] + effects[2] > 0 -> assert(false) }
}
