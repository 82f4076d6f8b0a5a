"""Tables that people have, each with what becomes of it: its rounds, or the question.

A round is written with its sides in order of rank: `ann > bob+cy = dan > eve!` has a team, a tie
and somebody who did not finish; `@home` is a seat, `x2` a weight, and the time follows unless it is
1970. A question is the end of the line that is asked.
"""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.builders.commands import run


class Case(NamedTuple):
    """A table, the options, and the rounds or the question."""

    text: str | bytes
    words: tuple[str, ...]
    due: str | list[str]


def asked(text: str | bytes, question: str, *words: str) -> Case:
    return Case(text, words, question)


def read(text: str | bytes, *due: str, by: tuple[str, ...] = ()) -> Case:
    return Case(text, by, list(due))


def of_teams(*sides: str) -> str:
    """A table of matches, each won by the first of two sides."""
    pairs = zip(sides[::2], sides[1::2], strict=True)
    return "winner,loser\n" + "".join(
        ",".join('"' + side.replace('"', '""') + '"' for side in pair) + "\n" for pair in pairs
    )


FENCING = "Event,Fencer,Place\ne1,p1,1\ne1,p2,2\ne1,p3,T3\ne1,p4,T3\n"
CHESS_REASONS = (
    "id,player,opponent,player_color,result,opponent_result\ng1,p1,p2,black,resigned,win\n"
    "g2,p1,p3,black,win,checkmated\ng3,p1,p2,white,agreed,agreed\n"
)
POKER = (
    "tournament_id,player,finish\nt1,p1,1st\nt1,p2,2nd\nt1,p3,3rd\nt2,p2,1\nt2,p3,=2\nt2,p1,=2\n"
)
VOTES = (
    "question_id,model_a,model_b,winner,judge\nq1,m1,m2,model_a,j1\nq2,m2,m1,tie,j1\n"
    "q3,m1,m3,model_b,j2\nq4,m1,m2,tie (bothbad),j2\nq5,m3,m2,both_bad,j1\n"
)
MARGIN = "home_team,away_team,result\np1,p2,-3\np2,p1,10\np1,p2,0\n"
RACE = "race_id,driver,position\nr1,p1,1\nr1,p2,2\nr1,p3,{}\n"
TENNIS = (
    "tourney_id,match_num,winner_name,loser_name,score\nt1,1,p1,p2,6-4 6-3\nt1,2,p3,p4,W/O\n"
    "t1,3,p1,p3,6-1 2-0 RET\nt1,4,p5,p6,Forfeit or other\n"
)
GO = "black,white,result\np1,p2,B+R\np2,p1,W+3.5\np1,p2,Jigo\n"
MAHJONG = 'game,player,score\ng1,p1,"41,200"\ng1,p2,"28,500"\ng1,p3,"20,300"\ng1,p4,"10,000"\n'
DATES = "date,player1,player2,score1,score2\n24-08-16,p1,p2,1,0\n24-02-20,p2,p1,1,0\n"
DAYS = "Date,winner,loser\n05/05/2020,p1,p2\n03/04/2020,p1,p2\n"
ROBOTS = "match_id,red1,red2,blue1,blue2,red_score,blue_score\nm1,p1,p2,p3,p4,195,183\n"
TEAMS = "game,player,Team Colour,rank\ng,p1,red,1\ng,p2,red,1\ng,p3,blue,2\ng,p4,blue,2\n"
MIXED = ("p1, p2", "p3, p4", "p3, p1", "p4, p2")
EQUAL = "match_id,winner,loser,winner_score,loser_score\nm1,p1,p2,34,20\nm2,p2,p1,20,20\n"

CASES = {
    # chess
    "pgn results": read("White,Black,Result\np1,p2,1-0\np1,p2,1/2-1/2\np2,p1,0-1\n",
                        "p1@white > p2@black", "p1@white = p2@black", "p1@black > p2@white"),
    "points of chess": read("White,Black,Result\np1,p2,1\np1,p2,0.5\np2,p1,0\n",
                            "p1@white > p2@black", "p1@white = p2@black", "p1@black > p2@white"),
    "halves": read("white,black,result\np1,p2,½-½\np1,p2,½\np1,p2,1\n",
                   "p1@white = p2@black", "p1@white = p2@black", "p1@white > p2@black"),
    "a game that is not over": asked("White,Black,Result\np1,p2,1-0\np1,p2,*\n",
                                     "--result '*=skip'"),
    "colours that won": read("white,black,winner\np1,p2,white\np1,p2,Black\np1,p2,draw\n",
                             "p1@white > p2@black", "p2@black > p1@white", "p1@white = p2@black"),
    "reasons": asked(CHESS_REASONS, "--result resigned=loss,agreed=draw, each as one of win"),
    "reasons, said": read(CHESS_REASONS, "p2 > p1", "p1 > p3", "p1 = p2",
                          by=("--result", "resigned=loss,agreed=draw")),
    "a round without an opponent": asked("white,black,result\np1,p2,1-0\np3,BYE,1-0\n",
                                         "--skip black=BYE to leave such rows out, or --columns "
                                         "status= to take them"),
    "byes left out": read("white,black,result\np1,p2,1-0\np3,BYE,1-0\n", "p1@white > p2@black",
                          by=("--skip", "black=bye")),
    "a player of that name": read("white,black,result\np3,BYE,1-0\n", "p3@white > BYE@black",
                                  by=("--columns", "status=")),
    # go
    "go": read(GO, "p1@black > p2@white", "p1@white > p2@black", "p2@white = p1@black"),
    # football
    "neutral ground": read(
        "date,home_team,away_team,home_score,away_score,neutral\n2024-06-01,p1,p2,1,1,FALSE\n"
        "2024-06-08,p1,p2,2,1,TRUE\n", "p1@home = p2@away 2024-06-01", "p1 > p2 2024-06-08"),
    "a location that may be neutral": read(
        "home,away,FTR,location\np1,p2,H,Home\np1,p2,A,Neutral\n", "p1@home > p2@away", "p2 > p1",
        by=("--neutral", "location")),
    "a column of grounds that says neither": asked(
        "home,away,FTR,neutral\np1,p2,H,Wembley\n", "--columns neutral="),
    "pools": read("home,away,result\np1,p2,1\np1,p2,X\np1,p2,2\n",
                  "p1@home > p2@away", "p1@home = p2@away", "p2@away > p1@home"),
    "points of football": read("team1,team2,result\np1,p2,3\np1,p2,1\np1,p2,0\n",
                               "p1 > p2", "p1 = p2", "p2 > p1"),
    "signs": read("team1,team2,result\np1,p2,1\np1,p2,0\np1,p2,-1\n", "p1 > p2", "p1 = p2",
                  "p2 > p1"),
    "numbers that may be two things": asked("team1,team2,result\np1,p2,1\np1,p2,2\np1,p2,0\n",
                                            "--result '1=?,2=?,0=?'"),
    "numbers, said": read("team1,team2,result\np1,p2,1\np1,p2,2\np1,p2,0\n",
                          "p1 > p2", "p2 > p1", "p1 = p2", by=("--result", "1=win,2=loss,0=draw")),
    "margins": asked(MARGIN, "or say --result margin if it is the margin by which the first "
                     "side won"),
    "margins, said": read(MARGIN, "p2@away > p1@home", "p2@home > p1@away", "p1@home = p2@away",
                          by=("--result", "margin")),
    "fixtures to come": asked("home,away,home_score,away_score\np1,p2,1,0\np2,p1,,\n",
                              "--skip home_score= to leave such rows out"),
    "fixtures left out": read("home,away,home_score,away_score\np1,p2,1,0\np2,p1,,\n",
                              "p1@home > p2@away", by=("--skip", "home_score=")),
    "a result that the scores say": read("home,away,winner,home_score,away_score\np1,p2,p1,1,0\n"
                                         "p1,p2,,2,2\n", "p1@home > p2@away", "p1@home = p2@away"),
    "a draw without a winner": asked("team1,team2,winner\np1,p2,p1\np1,p2,\n", "--result =skip"),
    "a draw without a winner, said": read("team1,team2,winner\np1,p2,p1\np1,p2,\n", "p1 > p2",
                                          "p1 = p2", by=("--result", "=draw")),
    "postponed": asked("home,away,FTR,status\np1,p2,H,played\np1,p2,H,Postponed\n",
                       "--skip status=Postponed"),
    # winners and losers
    "tied": asked(EQUAL, "--result equal=draw or --result equal=win"),
    "tied, a draw": read(EQUAL, "p1 > p2", "p2 = p1", by=("--result", "equal=draw")),
    "tied, on penalties": read(EQUAL, "p1 > p2", "p2 > p1", by=("--result", "equal=win")),
    "fewer is better": asked("winner,loser,winner_score,loser_score\np1,p2,68,70\n",
                             "--score low if it is the better one, or --columns "
                             "winner_score=,loser_score= to leave the scores out"),
    "fewer is better, said": read("winner,loser,winner_score,loser_score\np1,p2,68,70\n", "p1 > p2",
                                  by=("--score", "low")),
    "a draw among wins": asked("winner,loser,result\np1,p2,6 wickets\np1,p2,tie\n",
                               "--columns result=result"),
    "a draw among wins, said": read(
        "winner,loser,result\np1,p2,runs\np1,p2,tie\n", "p1 > p2", "p1 = p2",
        by=("--columns", "result=result", "--result", "runs=win")),
    # tennis, walkovers
    "walkovers": asked(TENNIS, "--skip 'score=W/O,score=Forfeit or other' to leave such rows out"),
    "walkovers left out": read(TENNIS, "p1 > p2", "p1 > p3",
                               by=("--skip", "score=W/O,score=Forfeit or other")),
    "walkovers taken": read(TENNIS, "p1 > p2", "p3 > p4", "p1 > p3", "p5 > p6",
                            by=("--columns", "status=")),
    "doubles": read("winner1_name,winner2_name,loser1_name,loser2_name\np1,p2,p3,p4\n",
                    "p1+p2 > p3+p4"),
    "doubles by id or name": asked(
        "winner1_id,winner2_id,winner1_name,winner2_name,loser1_id,loser2_id\n1,2,a,b,3,4\n",
        "winner may be winner1_id+winner2_id or winner1_name+winner2_name"),
    "beach volleyball": read("w_player1,w_player2,l_player1,l_player2,w_rank\np1,p2,p3,p4,7\n",
                             "p1+p2 > p3+p4"),
    # alliances, teams
    "alliances": read(ROBOTS, "p1@red+p2 > p3@blue+p4".replace("@red+p2", "+p2@red")
                      .replace("@blue+p4", "+p4@blue")),
    "alliances, said": read(ROBOTS, "p1+p2@red > p3+p4@blue",
                            by=("--columns", "red=red1+red2,blue=blue1+blue2")),
    "alliances by --team": read(ROBOTS, "p1+p2 > p3+p4", by=(
        "--team", "red1+red2", "--team", "blue1+blue2", "--columns",
        "score1=red_score,score2=blue_score")),
    "headerless alliances": asked("m1,r101,r102,195\nm2,r102,r101,90\n", "by their numbers, as "),
    "headerless, said": read(
        "m1,r101,r102,r103,r104,195,183\n", "r101+r102@red > r103+r104@blue",
        by=("--columns", "round=1,red=2+3,blue=4+5,red_score=6,blue_score=7")),
    "teams in a cell": asked(of_teams(*MIXED), "does ',' separate the members of a team? line 2: "
                             "'p1, p2' is one player, or 'p1' and 'p2'; line 2: 'p3, p4' is one "
                             "player, or 'p3' and 'p4'; line 3: 'p3, p1' is one player, or 'p3' "
                             "and 'p1': say --members , or --members whole"),
    "teams in a cell, said": read(of_teams(*MIXED), "p1+p2 > p3+p4", "p3+p1 > p4+p2",
                                  by=("--members", ",")),
    "one player with a comma": read(of_teams(*MIXED), "p1, p2 > p3, p4", "p3, p1 > p4, p2",
                                    by=("--members", "whole")),
    **{f"members between {sign}": asked(of_teams(*(each.replace(", ", sign) for each in MIXED)),
                                        f"does {sign.strip()!r} separate the members")
       for sign in (" / ", "+", " & ", ";", "|")},
    "members and one who plays alone": asked(of_teams("p1, p2", "p3", "p3, p1", "p2"),
                                             "does ',' separate"),
    "three names": asked(of_teams("a/b/c", "d/e/f"), "does '/' separate"),
    "lists": asked(of_teams("['p1', 'p2']", '["O\'Neil"]'), "'p1' and 'p2'; line 2: '[\"O\\\'Neil"
                   "\"]' is one player, or \"O'Neil\": say --members , or --members whole"),
    "lists of NumPy": read(of_teams("['p1' 'p2']", "['p3']"), "p1+p2 > p3", by=("--members", ",")),
    "names as they are": read(of_teams("Lee, Ann", "Lee, Bob", "Ray, Cy", "Poe, Dee"),
                              "Lee, Ann > Lee, Bob", "Ray, Cy > Poe, Dee"),
    "ids with hyphens": read(of_teams("gpt-4", "gpt-3", "lama-4", "gpt-4"), "gpt-4 > gpt-3",
                             "lama-4 > gpt-4"),
    "members in the long form": read("game,members,rank\ng,p1/p2,1\ng,p3,2\n", "p1+p2 > p3",
                                     by=("--members", "/")),
    "members of a side": read("team1_players,team2_players,winner\np1/p2,p3/p4,p4/p3\n",
                              "p3+p4 > p1+p2", by=("--members", "/")),
    "a missing member": read("red1,red2,blue1,blue2,red_score,blue_score\np1,,p3,p4,1,2\n",
                             "p3+p4@blue > p1@red"),
    "pairs in the long form": read("game,a,b,rank\ng,p1,p2,1\ng,p3,p4,2\n", "p1+p2 > p3+p4",
                                   by=("--team", "a+b")),
    "first and last names": read("race,first,last,rank\nr,Ann,Lee,1\nr,Bob,Lee,2\n",
                                 "Ann-Lee > Bob-Lee", by=("--columns", "player=first+last")),
    "team mates who share a rank": asked(TEAMS, "Say --columns 'team=Team Colour', or --columns "
                                                "team= if they are not"),
    "team mates, said": read(TEAMS, "p1+p2 > p3+p4", by=("--columns", "team=Team Colour")),
    "teams who tie": read("game,player,team,rank\ng,p1,a,1\ng,p2,b,1\ng,p3,c,2\ng,p4,d,2\n",
                          "p1 = p2 > p3 = p4"),
    "a match and the id of a row": read("match,uuid,player,rank\nm,u1,p1,1\nm,u2,p2,2\n",
                                        "p1 > p2"),
    "singles who tie": read(TEAMS, "p1 = p2 > p3 = p4", by=("--columns", "team=")),
    "one score of two columns": asked("p1,p2,a,b\nx,y,1,2\n", "score1 has one column, and a+b "
                                      "are 2", "--columns", "score1=a+b,score2=b"),
    # races
    "fencing": read(FENCING, "p1 > p2 > p3 = p4", by=("--columns", "player=Fencer")),
    "a race and its stage": asked("event,round,player,place\ne1,F,p1,1\ne1,F,p2,2\n",
                                  "round may be event or round: say which, as --columns"),
    "codes of places": read(
        "race,driver,pos\nr,p1,1\nr,p2,DSQ\nr,p3,\\N\nr,p4,DNS\nr,p5,-1\nr,p6,2\n",
        "p1 > p6 > p2! > p3! > p5!"),
    "a code that nobody knows": asked(RACE.format("XX"), "--result 'XX=?', each as one of dnf, "
                                      "skip"),
    "a code, said": read(RACE.format("XX"), "p1 > p2 > p3!", by=("--result", "xx=dnf")),
    "a code that is left out": read(RACE.format("XX"), "p1 > p2", by=("--result", "XX=skip")),
    "no place": asked(RACE.format(""), "--result =skip, each as one of dnf, skip"),
    "places from 0": asked("race,driver,pos\nr,p1,0\nr,p2,1\n",
                           "or name it as a score, as --columns rank=,score=pos with --score low"),
    "places from 0, said": read("race,driver,pos\nr,p1,0\nr,p2,1\n", "p1 > p2",
                                by=("--columns", "rank=,score=pos", "--score", "low")),
    "seasons that count their rounds": asked(
        "season,round,driver,position\n2023,1,p1,1\n2023,1,p2,2\n2024,1,p1,2\n2024,1,p2,1\n",
        "does round begin again in each season? Say --columns round=season+round or --columns "
        "round=round"),
    "cubes": asked("round,player,best\nr,p1,912\nr,p2,1045\nr,p3,-1\n",
                   "say --result -1=dnf or --result -1=score", "--columns", "score=best",
                   "--score", "low"),
    "cubes, said": read("round,player,best\nr,p1,912\nr,p2,1045\nr,p3,-1\n", "p1 > p2 > p3!",
                        by=("--columns", "score=best", "--score", "low", "--result", "-1=dnf")),
    "golf": read("round,player,score\nr,p1,-1\nr,p2,-12\nr,p3,3\n", "p2 > p1 > p3",
                 by=("--score", "low")),
    "a score that is a code": read("round,player,score\nr,p1,9.5\nr,p2,DNF\nr,p3,DNS\nr,p4,8\n",
                                   "p4 > p1 > p2!", by=("--score", "low")),
    "a status that is no flag": asked("race,driver,pos,dnf\nr,p1,1,no\nr,p2,2,Engine\n",
                                      "leave the column out, as --columns dnf="),
    # poker, mahjong, lobbies
    "poker": read(POKER, "p1 > p2 > p3", "p2 > p3 = p1"),
    "mahjong": asked(MAHJONG, "say --decimal . or --decimal ,", "--score", "high"),
    "mahjong, said": read(MAHJONG, "p1 > p2 > p3 > p4", by=("--score", "high", "--decimal", ".")),
    "millions": read('lobby,player,score\nl,p1,"1,234,500"\nl,p2,"987,000"\n', "p1 > p2",
                     by=("--score", "high")),
    "decimal commas": read("race;driver;score\nr;p1;9,58\nr;p2;9,69\nr;p3;1.009,1\n",
                           "p1 > p2 > p3", by=("--score", "low")),
    "commas that may be two": asked('g,player,score\nr,p1,"1,234"\nr,p2,"2,000"\n',
                                    "line 2: '1,234' is 1234 by '.' or 1.234 by ','; line 3: "
                                    "'2,000' is 2000 by '.' or 2.000 by ',': say --decimal . or "
                                    "--decimal ,", "--columns", "round=g", "--score", "high"),
    "minutes": asked("game,player,team,rank,share\ng,p1,a,1,90\ng,p2,a,1,45\ng,p3,b,2,90\n",
                     "say --columns share=COLUMN:90 if 90 is the whole round, or --columns share="),
    "an athlete's weight": asked("match_id,weight,winner,loser\nm1,75,p1,p2\n",
                                 "say --columns weight=weight or --columns weight="),
    "a round's weight": read("match_id,weight,winner,loser\nm1,2,p1,p2\n", "p1 > p2 x2",
                             by=("--columns", "weight=weight")),
    # models
    "votes": read(VOTES, "m1 > m2", "m2 = m1", "m3 > m1", "m1 = m2", "m3 = m2"),
    "a winner by the number of its side": read("player1,player2,winner\n7,9,1\n9,8,2\n", "7 > 9",
                                               "8 > 9"),
    "a winner who is neither": asked("team1,team2,winner\np1,p2,p1\np1,p2,p9\n",
                                     "what is meant by 'p9'? line 3: 'p9' (p1 – p2)"),
    # brackets
    "challonge": read("id,player1_name,player2_name,scores_csv\n1,p1,p2,3-1\n2,p2,p3,0-2\n",
                      "p1 > p2", "p3 > p2", by=("--columns", "result=scores_csv")),
    "start.gg": read("set.id,entrant.name,standing.placement\ns1,p1,2\ns1,p2,1\n", "p2 > p1"),
    # dates
    "years first": asked(DATES, "line 2: '24-08-16' is 2016-08-24 by dmy or 2024-08-16 by ymd; "
                         "line 3: '24-02-20' is 2020-02-24 by dmy or 2024-02-20 by ymd: say "
                         "--dates dmy or --dates ymd"),
    "years first, said": read(DATES, "p2 > p1 2024-02-20", "p1 > p2 2024-08-16",
                              by=("--dates", "ymd")),
    "years first, decided": read(DATES + "24-12-30,p1,p2,1,0\n99-12-31,p1,p2,1,0\n",
                                 "p1 > p2 1999-12-31", "p2 > p1 2024-02-20", "p1 > p2 2024-08-16",
                                 "p1 > p2 2024-12-30"),
    "months first": read("date,winner,loser\n03/04/2020,p1,p2\n12/31/2019,p1,p2\n",
                         "p1 > p2 2019-12-31", "p1 > p2 2020-03-04"),
    "days or months": asked(DAYS, "column Date: in which order are day, month and year? line 3: "
                            "'03/04/2020' is 2020-04-03 by dmy or 2020-03-04 by mdy: say --dates "
                            "dmy or --dates mdy"),
    "days, said": read(DAYS, "p1 > p2 2020-04-03", "p1 > p2 2020-05-05",
                       by=("--columns", "time=Date:dmy")),
    "months, said": read(DAYS, "p1 > p2 2020-03-04", "p1 > p2 2020-05-05",
                         by=("--columns", "time=Date:mdy")),
    "days, decided": read(DAYS + "31/12/2019,p1,p2\n", "p1 > p2 2019-12-31", "p1 > p2 2020-04-03",
                          "p1 > p2 2020-05-05"),
    "no order fits": asked("date,winner,loser\n31/12/2019,p1,p2\n12/31/2019,p1,p2\n",
                           "line 2: '31/12/2019' is 2019-12-31 by dmy; line 3: '12/31/2019' is "
                           "2019-12-31 by mdy: say --dates dmy or --dates mdy"),
    # ids and texts
    "blanks around ids": read("player1, player2, score1, score2\np1, p2 , 1, 0\np2, p1,1,0\n",
                              "p1 > p2", "p2 > p1"),
    "one name in two forms": read("winner,loser\nJose\u0301,p2\nJos\u00e9,p2\n", "Jos\u00e9 > p2",
                                  "Jos\u00e9 > p2"),
    "an old encoding": asked("winner,loser\nJos\u00e9,Zo\u00eb\n".encode("cp1252"),
                             ":2: not UTF-8 (the byte 0xe9): line 2: 'Jos\u00e9' by cp1252 or"),
    "an old encoding, said": read("winner,loser\nJos\u00e9,Zo\u00eb\n".encode("cp1252"),
                                  "Jos\u00e9 > Zo\u00eb", by=("--encoding", "cp1252")),
    "UTF-16": asked("winner,loser\np1,p2\n".encode("utf-16"), "say --encoding utf-16"),
    "UTF-16, said": read("winner,loser\np1,p2\np2,p1\n".encode("utf-16"), "p1 > p2", "p2 > p1",
                         by=("--encoding", "utf-16")),
    "a spreadsheet's list": read("Nr;Weiß;Schwarz;Ergebnis\n1;p1;p2;1-0\n2;p2;p3;½-½\n",
                                 "p1@white > p2@black", "p2@white = p3@black",
                                 by=("--columns", "round=Nr,white=Weiß,black=Schwarz,"
                                     "result=Ergebnis")),
    # what a stranger's tables showed
    "red before blue": read("red,blue,result\np1,p2,win\np1,p2,B\n", "p1@red > p2@blue",
                            "p2@blue > p1@red"),
    "ids and numbers of sides": asked("player1,player2,winner\n1,2,1\n2,1,1\n3,3,1\n".replace(
        "3,3,1", "3,4,1"), "what is meant by '1'? line 4: '1' (3 – 4)"),
    "plays of one game": read(
        "play_id,game,name,score\n1,Catan,p1,10\n1,Catan,p2,8\n2,Catan,p2,9\n2,Catan,p3,7\n",
        "p1 > p2", "p2 > p3", by=("--score", "high")),
    "meets": asked("Meet,Event,Athlete,Pos\nOslo,100m,p1,1\nOslo,100m,p2,2\nRome,100m,p3,1\n",
                   "does Event begin again in each Meet? Say --columns round=Meet+Event"),
    "a column of ties": asked("winner,loser,tie\np1,p2,False\np1,p2,True\n",
                              "was it a draw? line 3: 'True': say --columns result=tie"),
    "a majority draw": asked("winner,loser,method\np1,p2,KO\np1,p2,Majority Draw\n",
                             "was it a draw? line 3: 'Majority Draw'"),
    "words of few tables": asked("home,away,FTR,status\np1,p2,H,FT\np1,p2,D,CANC\np1,p2,D,n/p\n",
                                 "--skip status=CANC,status=n/p to leave"),
    "a score that is a word": asked("home,away,home_score,away_score\np1,p2,1,0\np1,p2,FF,W\n",
                                    "column home_score: what is meant by 'FF'?"),
    "a forfeit, said": read("home,away,home_score,away_score\np1,p2,1,0\np1,p2,FF,20\n",
                            "p1@home > p2@away", "p2@away > p1@home!",
                            by=("--result", "FF=dnf")),
    "a mark of minutes": asked("race,player,score\nr,p1,59.90\nr,p2,1:02.33\n",
                               "what is meant by '1:02.33'?", "--score", "low"),
    "a result of three": asked("p1,p2,p3,winner\na,b,c,a\n", "a result is of two sides",
                               "--columns", "result=winner,score1=winner,score2=winner,"
                               "score3=winner"),
    "a header again": read("winner,loser\np1,p2\nwinner,loser\np2,p1\n", "p1 > p2", "p2 > p1"),
    "totals": asked("game,player,score\ng,p1,5\ng,Total,9\n", "--skip player=Total", "--score",
                    "high"),
    # forms of files that people publish, each with a row or two of made-up values
    "published: football of a season": read(
        "Div,Date,Time,HomeTeam,AwayTeam,FTHG,FTAG,FTR,HTHG,HTAG,HTR,Referee,B365H\n"
        "E0,16/08/2024,20:00,p1,p2,1,0,H,0,0,D,r,1.6\nE0,17/08/2024,12:30,p3,p4,1,1,D,0,0,D,r,2\n",
        "p1@home > p2@away 2024-08-16", "p3@home = p4@away 2024-08-17"),
    "published: American football": read(
        "game_id,season,game_type,week,gameday,weekday,gametime,away_team,away_score,home_team,"
        "home_score,location,result,total,overtime\n"
        "2024_01_A_B,2024,REG,1,2024-09-08,Sun,13:00,p1,17,p2,14,Home,-3,31,0\n"
        "2024_02_A_B,2024,REG,2,2024-09-15,Sun,13:00,p2,,p1,,Neutral,,,\n",
        "p1@away > p2@home 2024-09-08", by=(
            "--columns", "result=", "--skip", "home_score=", "--neutral", "location")),
    "published: tennis": read(
        "tourney_id,tourney_name,surface,draw_size,tourney_level,tourney_date,match_num,winner_id,"
        "winner_seed,winner_name,winner_rank,loser_id,loser_seed,loser_name,loser_rank,score,"
        "best_of,round,minutes\n"
        "2024-1,t,Hard,32,A,20240106,300,1,,p1,4,2,,p2,9,6-2 7-6(4),3,F,112\n"
        "2024-1,t,Hard,32,A,20240106,299,1,,p1,4,3,,p3,9,W/O,3,SF,\n", "p1 > p2 2024-01-06",
        by=("--columns", "winner=winner_name,loser=loser_name", "--skip", "score=W/O")),
    "published: motor races": read(
        "resultId,raceId,driverId,constructorId,number,grid,position,positionText,positionOrder,"
        "points,laps,time,milliseconds,fastestLap,rank,statusId\n"
        "1,18,1,1,22,1,1,1,1,10,58,1:34:50.616,5690616,39,2,1\n"
        "2,18,2,2,3,5,2,2,2,8,58,+5.478,5696094,41,3,1\n"
        "3,18,3,3,7,7,\\N,R,3,6,58,\\N,\\N,41,5,4\n", "1 > 2 > 3!",
        by=("--columns", "rank=position,player=driverId,time=")),
    "published: games of chess": read(
        "id,rated,created_at,last_move_at,turns,victory_status,winner,increment_code,white_id,"
        "white_rating,black_id,black_rating,moves\n"
        "g1,TRUE,1504210000000,1504210001000,13,outoftime,white,15+2,p1,1500,p2,1191,d4\n"
        "g2,TRUE,1504130000000,1504130001000,16,draw,draw,5+10,p3,1322,p1,1261,d4\n",
        "p3@white = p1@black 2017-08-30", "p1@white > p2@black 2017-08-31"),
    "published: cubes": read(
        "competitionId,eventId,roundTypeId,pos,best,average,personName,personId\n"
        "C1,333,f,1,812,900,a,2012A\nC1,333,f,2,-1,-1,b,2013B\nC2,333,f,1,700,800,b,2013B\n"
        "C2,333,f,2,-2,-2,a,2012A\nC2,333,f,3,900,950,c,2014C\n",
        "2012A > 2013B", "2013B > 2012A > 2014C", by=(
            "--columns", "round=competitionId+roundTypeId+eventId,player=personId")),
    "cubes of many events": asked(
        "competitionId,eventId,roundTypeId,pos,personId\nC1,333,f,1,2012A\n",
        "does eventId begin again in each competitionId and roundTypeId? Say --columns "
        "round=competitionId+roundTypeId+eventId or --columns round=eventId"),
    "times that are none": asked("race,driver,pos,time\nr,p1,1,1:34:50.616\nr,p2,2,+5.478\n",
                                 "no cell is a time (line 2: '1:34:50.616'): name another, or "
                                 "none, as --columns time="),
}  # fmt: skip


def shown(event: dict[str, Any]) -> str:
    """A round as a line."""
    last = len(event["standings"]) + 1
    text, before = "", 0
    for each in sorted(event["standings"], key=lambda one: one.get("rank", last)):
        place = each.get("rank", last)
        name = "+".join(each.get("team") or [each["player"]])
        seat = f"@{each['seat']}" if "seat" in each else ""
        sign = " = " if place == before < last else " > "
        text += f"{sign if text else ''}{name}{seat}{'!' if each.get('dnf') else ''}"
        before = place
    day = event["completed_at"][:10]
    weight = f" x{event['weight']}" if "weight" in event else ""
    return f"{text}{weight}{'' if day == '1970-01-01' else f' {day}'}"


@pytest.mark.parametrize("name", CASES)
def test_cases(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = tmp_path / "a.csv.gz"
    text = case.text if isinstance(case.text, bytes) else case.text.encode()
    path.write_bytes(gzip.compress(text))
    found = run("convert", str(path), "-", *case.words)
    if isinstance(case.due, str):
        last = found.stderr.splitlines()[-1]
        assert case.due in last, last
        assert (found.exit_code, found.stdout) == (2, "")
    else:
        assert found.exit_code == 0, found.stderr
        assert [shown(json.loads(line)) for line in found.stdout.splitlines()] == case.due
